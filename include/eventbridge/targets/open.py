"""Opens a rule's target with the opener for its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Generic, TypeVar

from eventbridge import rules
from eventbridge.config.connection import Connection
from eventbridge.config.target_locations import NOWHERE, TargetLocations
from eventbridge.errors import UserError
from eventbridge.rules.types import TARGET_TYPES, load_opener
from eventbridge.targets.protocol import Target
from eventbridge.targets.ssrf_guard import Network

AnyTarget = TypeVar("AnyTarget", bound=rules.Target, covariant=True)


@dataclass(frozen=True)
class TargetSetup(Generic[AnyTarget]):
    """One target of a rule, to be opened for one push task.

    `connections` returns the current connection with a given id. An http target connects only to public addresses and
    to addresses in `allow_addresses` (`ssrf_guard`). A target that writes files or objects writes only where
    `locations` allows it. `clock` returns aware times.
    """

    rule: str
    target: AnyTarget
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    allow_addresses: Sequence[Network] = ()
    locations: TargetLocations = NOWHERE

    def error(self, problem: str, remedy: str) -> UserError:
        """Return the error to raise for a target that the rule file makes unusable."""
        return UserError(f"Target {self.target.name!r} of rule {self.rule!r} {problem}. {remedy}.")


def open_target(
    rule: str,
    target: rules.Target,
    connections: Callable[[str], Connection],
    clock: Callable[[], datetime],
    allow_addresses: Sequence[Network] = (),
    locations: TargetLocations = NOWHERE,
) -> Target:
    """Return a target ready to deliver; `TargetSetup` describes the arguments.

    Raises UserError for a target that the rule file makes unusable, ConnectionUnusable for an unusable connection.
    It does not check whether the target is reachable.
    """
    return _opener(target.type)(TargetSetup(rule, target, connections, clock, allow_addresses, locations))


@cache
def _opener(name: str) -> Callable[[TargetSetup[rules.Target]], Target]:
    path = TARGET_TYPES.get(name).opener
    found: Callable[[TargetSetup[rules.Target]], Target] = load_opener(TARGET_TYPES.group, name, path)
    return found
