"""What somebody who is limited to owners sees: their rules, their buses, and what was done with events by those."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eventbridge.errors import UserError
from eventbridge.rule.operations_bus import OPERATIONS_BUS
from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class Visibility:
    """The names of rules and buses that somebody sees; None: all, those that are in no file any more too."""

    rules: Collection[str] | None = None
    buses: Collection[str] | None = None

    def rule(self, name: str | None) -> bool:
        """Return whether a rule is seen; what is of no rule is seen by whoever sees all."""
        return self.rules is None or name in self.rules

    def all_rules(self, names: Iterable[str | None]) -> bool:
        """Return whether rules that are named are all seen; none named: whether every rule is."""
        given = list(names)
        return self.rules is None or (bool(given) and all(map(self.rule, given)))

    def bus(self, name: str | None) -> bool:
        """Return whether the events of a bus are seen."""
        return self.buses is None or name in self.buses

    def dead_letter(self, record: Mapping[str, Any]) -> bool:
        """Return whether a dead letter is seen: by its rule or, of an event that never had one, by its bus."""
        return self.rule(record["rule"]) if record["rule"] else self.bus(record["bus"])


def check_seen(runtime: Runtime, rules: Iterable[str | None]) -> None:
    """Raise UserError if what somebody asks for is not of rules alone that are named and seen."""
    if not visibility_of(runtime).all_rules(rules):
        raise UserError("Name the rules that it is for, all of them of your own")


def visibility_of(runtime: Runtime) -> Visibility:
    """Return what is seen by those for whom a runtime works.

    Operational events tell of everybody's rules: only who owns the bus `eventbridge` sees them.
    """
    if runtime.owners is None:
        return Visibility()
    rules = runtime.rule_set()
    own = rules.buses.get(OPERATIONS_BUS.name, OPERATIONS_BUS).owner in runtime.owners
    return Visibility(
        frozenset(rules.rules), frozenset(name for name in rules.buses if own or name != OPERATIONS_BUS.name)
    )
