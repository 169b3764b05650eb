"""Returns the throughput of an installation, a rule or a target over the last hour or day, for charts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from eventbridge.model.stat import AGAIN, BUCKETS, EVENT_OUTCOMES, Stat, StatsStep
from eventbridge.policy.flow import quantile_seconds
from eventbridge.rules import Rule
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import day_of
from eventbridge.views.metrics import reconciliation_difference

Span = Literal["hour", "day"]

_MINUTE = timedelta(minutes=1)
_STEPS: dict[Span, tuple[int, timedelta]] = {"hour": (60, _MINUTE), "day": (48, timedelta(minutes=30))}


@dataclass(frozen=True)
class Step:
    """One time step, which begins at `at`; counts are per minute, times are in seconds.

    `failed` counts dead-lettered deliveries, and `pending` each time that one is deferred. `p50_seconds` and
    `p99_seconds` are times from published to delivered, or None if nothing was delivered.
    """

    at: datetime
    events: float
    delivered: float
    failed: float
    pending: float
    p50_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True)
class Timeline:
    """Complete steps of an hour or a day, oldest first."""

    span: Span
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class RuleHour:
    """The outcomes of a rule's deliveries in the last hour, and how many are `pending` now."""

    delivered: int
    dead_lettered: int
    pending: int

    @property
    def delivered_percent(self) -> float | None:
        """The delivered share of all three counts in percent; None if all are 0."""
        known = self.delivered + self.dead_lettered + self.pending
        return 100 * self.delivered / known if known else None


@dataclass(frozen=True)
class ReconciliationToday:
    """The reconciliation since midnight (UTC): committed events by status, and deliveries.

    The deliveries balance: `pending_before` + `matched` + `again` = `delivered` + `dead_lettered` +
    `pending` + `difference`. `pending_before` were pending at midnight, `again` were redriven or are copies for dead
    letter queues. `difference` is the number of deliveries, on any day, that are neither delivered, nor dead-lettered,
    nor pending; any value other than 0 is an error.
    """

    since: datetime
    moved: int
    valid: int
    duplicate: int
    malformed: int
    tombstone: int
    gap: int
    pending_before: int
    matched: int
    again: int
    delivered: int
    dead_lettered: int
    pending: int
    difference: int

    @property
    def accounted(self) -> int:
        """The number of offsets that are accounted for: events of any status, tombstones, and gaps of the log."""
        return self.valid + self.duplicate + self.malformed + self.tombstone + self.gap


def timeline(runtime: Runtime, span: Span) -> Timeline:
    """Return the timeline of all buses."""
    times, step = _times(runtime.clock(), span)
    return _timeline(span, times, step, runtime.ledger.stats.timeline("bus", times, step))


def rule_timeline(runtime: Runtime, rule: str, span: Span) -> dict[str, Timeline]:
    """Return the timeline of a rule under the key "", and that of each of its targets under the target's name.

    Raises NotFoundError for an unknown rule.
    """
    found = find_rule(runtime.rule_set(), rule)
    times, step = _times(runtime.clock(), span)
    steps = runtime.ledger.stats.timeline("target", times, step, (found.bus, rule))
    timelines = {"": _timeline(span, times, step, steps)}
    for target in found.destinations:
        of = [each for each in steps if each.stat.key.target == target]
        timelines[target] = _timeline(span, times, step, of)
    return timelines


def rule_hours(runtime: Runtime, rules: Sequence[Rule]) -> dict[str, RuleHour]:
    """Return the outcomes of some rules' deliveries in the last hour, by the name of the rule."""
    times, _ = _times(runtime.clock(), "hour")
    found = runtime.ledger.stats.outcomes(times, {(rule.bus, rule.name) for rule in rules})
    pending: Counter[str] = Counter()
    for row in runtime.ledger.pending.counts():
        pending[row.rule] += row.count
    return {
        rule.name: RuleHour(
            found.get((rule.name, "delivered"), 0), found.get((rule.name, "dead_lettered"), 0), pending[rule.name]
        )
        for rule in rules
    }


def reconciliation_today(runtime: Runtime) -> ReconciliationToday:
    """Return the reconciliation since midnight (UTC)."""
    since = day_of(runtime.clock())
    moved, stats = runtime.ledger.stats.count_moved_since(since)
    counts: Counter[str] = Counter()
    for each in stats:
        counts[each.stat.key.outcome] += each.stat.count
    matched = sum(each.stat.matched for each in stats)
    snapshot = runtime.ledger.snapshots.read(of_targets=False)
    pending, difference = sum(each.count for each in snapshot.pending), reconciliation_difference(snapshot)
    came, ended = matched + counts[AGAIN], counts["delivered"] + counts["dead_lettered"]
    return ReconciliationToday(
        since=since,
        moved=moved,
        **{outcome: counts[outcome] for outcome in EVENT_OUTCOMES},
        pending_before=pending + difference + ended - came,
        matched=matched,
        again=counts[AGAIN],
        delivered=counts["delivered"],
        dead_lettered=counts["dead_lettered"],
        pending=pending,
        difference=difference,
    )


def _times(now: datetime, span: Span) -> tuple[list[datetime], timedelta]:
    """Return the beginnings of the complete minutes in a span, and the length of a step."""
    count, step = _STEPS[span]
    until = now.replace(second=0, microsecond=0)
    minutes = count * step // _MINUTE
    return [until - _MINUTE * back for back in range(minutes, 0, -1)], step


def _timeline(span: Span, times: Sequence[datetime], step: timedelta, found: Sequence[StatsStep]) -> Timeline:
    by_step: dict[int, list[Stat]] = defaultdict(list)
    for each in found:
        by_step[each.step].append(each.stat)
    count = _STEPS[span][0]
    steps = (_step(times[0] + step * number, by_step[number], step / _MINUTE) for number in range(count))
    return Timeline(span, tuple(steps))


def _step(at: datetime, stats: Sequence[Stat], minutes: float) -> Step:
    counts: dict[str, int] = defaultdict(int)
    buckets, seconds = [0] * BUCKETS, 0.0
    for each in stats:
        counts[each.key.outcome] += each.count
        if each.key.outcome == "delivered":
            seconds += each.latency / 1e6
            buckets = [one + two for one, two in zip(buckets, each.buckets, strict=True)]
    events = sum(counts[outcome] for outcome in EVENT_OUTCOMES if outcome != "gap")
    return Step(
        at=at,
        events=events / minutes,
        delivered=counts["delivered"] / minutes,
        failed=counts["dead_lettered"] / minutes,
        pending=counts["pending"] / minutes,
        p50_seconds=quantile_seconds(buckets, 0.5, seconds),
        p99_seconds=quantile_seconds(buckets, 0.99, seconds),
    )
