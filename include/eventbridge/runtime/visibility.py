"""Decides what a user who is limited to owners may see: the owners' rules and buses, and the events of these buses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eventbridge.errors import UserError
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class Visibility:
    """The names of the rules and buses that a user may see.

    None means all, including those that no rule file defines any more. Of the buses in `shared`, only the events that a
    visible rule matched are visible.
    """

    rules: Collection[str] | None = None
    buses: Collection[str] | None = None
    shared: Collection[str] = ()

    def rule(self, name: str | None) -> bool:
        """Return whether a rule is visible. Records without a rule are visible only to users who see all rules."""
        return self.rules is None or name in self.rules

    def all_rules(self, names: Iterable[str | None]) -> bool:
        """Return whether all named rules are visible. If none are named, return whether every rule is."""
        given = list(names)
        return self.rules is None or (bool(given) and all(map(self.rule, given)))

    def bus(self, name: str | None) -> bool:
        """Return whether the events of a bus are visible."""
        return self.buses is None or name in self.buses

    def dead_letter(self, record: Mapping[str, Any]) -> bool:
        """Return whether a dead letter is visible. This depends on its rule or, if it has none, on its bus."""
        if record["rule"]:
            return self.rule(record["rule"])
        return self.bus(record["bus"]) and record["bus"] not in self.shared


def check_seen(runtime: Runtime, rules: Iterable[str | None]) -> None:
    """Raise UserError unless all named rules are visible. A user who may not see all rules must name some."""
    if not visibility_of(runtime).all_rules(rules):
        raise UserError("Name the rules, and only rules that you own")


def visibility_of(runtime: Runtime) -> Visibility:
    """Return the visibility of a runtime's user.

    Operational events concern the rules of all owners. A user who is limited to owners sees them only if one of these
    owns the bus `eventbridge`.
    """
    if runtime.owners is None:
        return Visibility()
    rules = runtime.rule_set()
    own = rules.buses.get(OPERATIONS_BUS.name, OPERATIONS_BUS).owner in runtime.owners
    buses = frozenset(name for name in rules.buses if own or name != OPERATIONS_BUS.name)
    shared = (name for name in buses if runtime.only_matched and rules.buses[name].owner not in runtime.owners)
    return Visibility(frozenset(rules.rules), buses, frozenset(shared))
