"""What the express lane does of a runner's rules: what it sends as it comes, what it leaves, what it cannot deliver."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.rule import RuleSet, Target
from eventbridge.rule.types import TARGET_TYPES


def left_to_close(rules: RuleSet) -> frozenset[tuple[str, str]]:
    """Return the targets, as rule and target, to which the close of a window sends: in order, or in spans.

    What a costly rule matches is sent by neither: the close refers it to the slow lane, which has Spark.
    """
    return frozenset(
        (rule.name, name)
        for rule in rules.rules.values()
        for name, target in rule.destinations.items()
        if target.ordered or takes_spans(target)
    )


def takes_spans(target: Target) -> bool:
    """Return whether a target takes what lies side by side as a whole."""
    return TARGET_TYPES.get(target.type).takes(target) == "spans"


def unfit(rules: RuleSet, *, has_spark: bool = True) -> list[str]:
    """Return everything in a runner's rules that the express lane does not deliver, alone or with Spark beside it."""
    wrong = [f"bus {bus.name}: it is a queue, and no log" for bus in rules.buses.values() if bus.source.is_queue]
    if not has_spark:
        in_sql = [rule.name for rule in rules.rules.values() if rule.in_sql]
        wrong += [f"rule {name}: it has where or SQL, which only Spark evaluates" for name in in_sql]
    return wrong


def refuse_unfit(rules: RuleSet, *, has_spark: bool) -> None:
    """Raise UserError with everything in a runner's rules that the express lane does not deliver."""
    if wrong := unfit(rules, has_spark=has_spark):
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
