"""Opens a rule's target by the opener of its type; called by push for each target of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

from eventbridge import rules
from eventbridge.config.connection import Connection
from eventbridge.rules.types import TARGET_TYPES, load_opener
from eventbridge.targets.opening import Opening
from eventbridge.targets.protocol import Target
from eventbridge.targets.ssrf_guard import Network


def open_target(
    rule: str,
    target: rules.Target,
    connections: Callable[[str], Connection],
    clock: Callable[[], datetime],
    allow_addresses: Sequence[Network] = (),
    file_folders: Sequence[Path] = (),
) -> Target:
    """Return a target ready to deliver; `Opening` describes the arguments.

    Raises UserError for a target that the rule file makes unusable (ConnectionUnusable for its connection); whether the
    target is reachable, only delivering shows.
    """
    return _opener(target.type)(Opening(rule, target, connections, clock, allow_addresses, file_folders))


@cache
def _opener(name: str) -> Callable[[Opening[rules.Target]], Target]:
    path = TARGET_TYPES.get(name).opener
    found: Callable[[Opening[rules.Target]], Target] = load_opener(TARGET_TYPES.group, name, path)
    return found
