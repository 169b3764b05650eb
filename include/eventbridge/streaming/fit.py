"""How streaming mode handles a runner's rules: sent as events come, left to the close, or not possible."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.types import TARGET_TYPES


def left_to_close(rules: RuleSet) -> frozenset[tuple[str, str]]:
    """Return the targets, as (rule, target), to which the close of a batch sends: ordered ones and those of spans.

    Neither sends matches of budgeted rules: the close defers them to the slow lane, which has Spark.
    """
    return frozenset(
        (rule.name, name)
        for rule in rules.rules.values()
        for name, target in rule.destinations.items()
        if target.ordered or takes_spans(target)
    )


def takes_spans(target: Target) -> bool:
    """Return whether a target takes spans."""
    return TARGET_TYPES.get(target.type).takes(target) == "spans"


def refuse_unfit(rules: RuleSet, *, has_spark: bool) -> None:
    """Raise UserError with every rule of a runner that streaming mode cannot deliver without Spark."""
    in_sql = [] if has_spark else [rule.name for rule in rules.rules.values() if rule.in_sql]
    if in_sql:
        wrong = "; ".join(f"rule {name}: it has where or SQL, which only Spark evaluates" for name in in_sql)
        raise UserError(
            f"streaming mode does not deliver this without Airflow: {wrong}. "
            "Run `eventbridge deliver` without --streaming, or give these rules another runner"
        )
