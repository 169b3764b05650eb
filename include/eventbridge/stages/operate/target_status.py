"""How every target of today's rule files stands, for a person to look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from eventbridge.decision.breaker import pause_of
from eventbridge.model.target_state import TargetState
from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class TargetLine:
    """How one target stands, and how many of its deliveries wait, due or held.

    `since` is None for one that never was anything but ok. `until`, `good`, `slow` and `failing_since` are those of
    `breaker.TargetStatus`; so is `paused_until`, None when that is over. `held`: why operators keep deliveries from it.
    """

    rule: str
    target: str
    state: TargetState
    reason: str
    since: datetime | None
    until: datetime | None
    good: int
    slow: bool
    failing_since: datetime | None
    paused_until: datetime | None
    waiting: int
    held: str = ""


def target_list(work: Runtime) -> list[TargetLine]:
    """Return a line for each target of today's rules, and for each of rules gone that is not well."""
    statuses = work.ledger.target_statuses()
    said = work.ledger.said_by_operators()
    now = work.ledger.now()
    waiting: Counter[tuple[str, str]] = Counter()
    for row in work.ledger.parked_counts():
        waiting[row.rule, row.target] += row.count
    today = {(rule.name, target) for rule in work.rule_set().rules.values() for target in rule.targets}
    lines = []
    for rule, target in sorted(today | {key for key, status in statuses.items() if status.state != "ok"}):
        status = statuses.get((rule, target))
        count, held = waiting[rule, target], said.hold_reason(rule, target)
        if status is None:
            lines.append(TargetLine(rule, target, "ok", "", None, None, 0, False, None, None, count, held))
        else:
            standing = vars(status) | {"paused_until": pause_of(status, now)}
            lines.append(TargetLine(**standing, waiting=count, held=held))
    return lines
