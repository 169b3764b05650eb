"""What the express lane does not deliver yet, of a runner's rules."""

from __future__ import annotations

from typing import Final

from eventbridge.errors import UserError
from eventbridge.rule import RuleSet

#: Target types, and buses, that the express lane delivers.
_TARGETS: Final = ("http", "file")
_BUSES: Final = ("embedded",)


def unfit(rules: RuleSet) -> list[str]:
    """Return everything in a runner's rules that the express lane does not deliver."""
    wrong = [f"bus {bus.name}: type {bus.source.type}" for bus in rules.buses.values() if bus.source.type not in _BUSES]
    for rule in rules.rules.values():
        if rule.costly:
            wrong.append(f"rule {rule.name}: it is costly (where, SQL or JSONATA)")
        for name, target in rule.destinations.items():
            if target.type not in _TARGETS:
                wrong.append(f"rule {rule.name}, target {name}: type {target.type}")
            if target.ordered:
                wrong.append(f"rule {rule.name}, target {name}: it is ordered")
            if target.not_before is not None:
                wrong.append(f"rule {rule.name}, target {name}: it has not_before")
            if target.shadow_of is not None:
                wrong.append(f"rule {rule.name}, target {name}: it is a shadow")
    return wrong


def refuse_unfit(rules: RuleSet) -> None:
    """Raise UserError with everything in a runner's rules that the express lane does not deliver."""
    if wrong := unfit(rules):
        raise UserError(
            "the express lane does not deliver this yet: " + "; ".join(wrong) + ". "
            "Run `eventbridge deliver` without --express, or give these rules another runner"
        )


def express_warnings(rules: RuleSet) -> list[str]:
    """Return a line for each runner of mode express whose rules keep it in stages, and say what of them does."""
    found = []
    for runner, said in rules.modes.items():
        if said.mode == "express" and (wrong := unfit(rules.for_runner(runner))):
            found.append(
                f"the runner {runner} is express and works in stages, as express does not do: {'; '.join(wrong)}"
            )
    return found
