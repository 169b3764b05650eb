"""Opens a rule's target with the opener for its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from eventbridge import rules
from eventbridge.clients.seen_connections import SeenConnections
from eventbridge.config.connection import Connection
from eventbridge.config.target_locations import NOWHERE, TargetLocations
from eventbridge.errors import UserError
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.targets.plug_in import PlugInTarget
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

    Raises UserError for a target that the rule file makes unusable, ConnectionUnusable for an unusable connection;
    the target of a plug-in raises them when it delivers. It does not check whether the target is reachable.
    """
    opener = TARGET_TYPES.load_opener(target.type, target)
    plug_in = TARGET_TYPES.plug_in(target.type)
    if plug_in is None:
        found: Target = opener(TargetSetup(rule, target, connections, clock, allow_addresses, locations))
        return found
    seen = SeenConnections(connections)
    setup = TargetSetup(rule, target, seen, clock, allow_addresses, locations)
    return PlugInTarget(plug_in, partial(opener, setup), target, seen.veil, clock)
