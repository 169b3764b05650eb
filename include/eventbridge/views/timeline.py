"""Returns the throughput of an installation, a rule or a target over a period, for charts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from eventbridge.model.stat import AGAIN, BUCKETS, EVENT_OUTCOMES, Scope, Stat, StatsStep
from eventbridge.policy.flow import quantile_seconds
from eventbridge.rules import Rule
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import day_of
from eventbridge.views.metrics import reconciliation_difference

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
#: The lengths of a step, each with the longest period that has steps of this length.
_STEPS: Final[tuple[tuple[timedelta, timedelta], ...]] = (
    (_MINUTE, 2 * _HOUR),
    (timedelta(minutes=5), 8 * _HOUR),
    (timedelta(minutes=30), 25 * _HOUR),
    (_HOUR, 3 * _DAY),
    (3 * _HOUR, 8 * _DAY),
)
#: How long stats are kept by minute, and then by hour; after that they are kept by day. See upkeep.maintain. A step is
#: never shorter than the stats of its time, which would all fall into the first of several steps.
_KEPT: Final[dict[Scope, tuple[tuple[timedelta, timedelta], ...]]] = {
    "bus": ((_MINUTE, 26 * _HOUR), (_HOUR, 8 * _DAY)),
    "target": ((_MINUTE, 3 * _HOUR), (_HOUR, 8 * _DAY)),
}
#: Stats of targets are kept by minute for 3 hours, and folded by the next run of maintenance.
_KEPT_MINUTES: Final = timedelta(hours=26)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The longest period of a chart.
MAX_PERIOD: Final = timedelta(days=366)


@dataclass(frozen=True)
class Period:
    """A period of time from `since` (included) to `until` (excluded), both aware."""

    since: datetime
    until: datetime

    def last(self, length: timedelta) -> Period:
        """Return the end of the period, of the given length at most."""
        return Period(max(self.since, self.until - length), self.until)


@dataclass(frozen=True)
class Step:
    """One time step, which begins at `at`; counts are per minute, times are in seconds.

    `failed` counts dead-lettered deliveries, and `pending` each time that one is deferred. `p50_seconds` and
    `p99_seconds` are times from published to delivered, or None if nothing was delivered. A step that is not known
    ended before the oldest stat; its counts are 0.
    """

    at: datetime
    events: float
    delivered: float
    failed: float
    pending: float
    p50_seconds: float | None
    p99_seconds: float | None
    is_known: bool = True


@dataclass(frozen=True)
class Timeline:
    """The complete steps of a period, each `length` long, the oldest first."""

    length: timedelta
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class LastHour:
    """The outcomes of the deliveries of a rule or a target in the last hour, and how many are `pending` now.

    `p99_seconds` is the time from published to delivered that 99 % of them did not exceed; None if there are none.
    """

    delivered: int
    dead_lettered: int
    pending: int
    p99_seconds: float | None = None

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


def timeline(runtime: Runtime, period: Period) -> Timeline:
    """Return the timeline of all buses."""
    starts, step = _starts(period, "bus", runtime.clock())
    found = runtime.ledger.stats.timeline("bus", _times(starts, step), step)
    return _timeline(starts, step, found, runtime.ledger.stats.began_at("bus"))


def rule_timeline(runtime: Runtime, rule: str, period: Period) -> dict[str, Timeline]:
    """Return the timeline of a rule under the key "", and that of each of its targets under the target's name.

    Raises NotFoundError for an unknown rule.
    """
    found = find_rule(runtime.rule_set(), rule)
    starts, step = _starts(period, "target", runtime.clock())
    steps = runtime.ledger.stats.timeline("target", _times(starts, step), step, (found.bus, rule))
    began_at = runtime.ledger.stats.began_at("target")
    timelines = {"": _timeline(starts, step, steps, began_at)}
    for target in found.destinations:
        of = [each for each in steps if each.stat.key.target == target]
        timelines[target] = _timeline(starts, step, of, began_at)
    return timelines


def last_hours(runtime: Runtime, rules: Sequence[Rule]) -> dict[tuple[str, str], LastHour]:
    """Return the last hour of some rules and their targets, by the names of rule and target; "" for a whole rule."""
    now = runtime.clock()
    times, _ = _starts(Period(now - _HOUR, now), "target", now)
    stats: dict[tuple[str, str], list[Stat]] = defaultdict(list)
    for each in runtime.ledger.stats.outcomes(times, {(rule.bus, rule.name) for rule in rules}):
        stats[each.key.rule, each.key.target].append(each)
        stats[each.key.rule, ""].append(each)
    pending: Counter[tuple[str, str]] = Counter()
    for row in runtime.ledger.pending.counts():
        pending[row.rule, row.target] += row.count
        pending[row.rule, ""] += row.count
    keys = [(rule.name, name) for rule in rules for name in ("", *rule.targets)]
    return {key: _last_hour(stats[key], pending[key]) for key in keys}


def _last_hour(stats: Sequence[Stat], pending: int) -> LastHour:
    sums = _step(_EPOCH, stats, 1)
    return LastHour(round(sums.delivered), round(sums.failed), pending, sums.p99_seconds)


def totals(runtime: Runtime, period: Period) -> Step:
    """Return the counts of a period on all buses as one step, to the minute; its counts are not per minute."""
    found = runtime.ledger.stats.timeline("bus", [period.since, period.until], 2 * (period.until - period.since))
    return _step(period.since, [each.stat for each in found if each.step == 0], 1)


def matched_in(runtime: Runtime, rule: str, period: Period, targets: Collection[str] = ()) -> int:
    """Return how many deliveries a rule's events matched in a period, for some of its targets or (none) for all.

    The last step is counted although it is not complete.

    Raises NotFoundError for an unknown rule.
    """
    found = find_rule(runtime.rule_set(), rule)
    starts, step = _starts(period, "target", runtime.clock())
    starts.append(starts[-1] + step)
    steps = runtime.ledger.stats.timeline("target", _times(starts, step), step, (found.bus, rule))
    return sum(each.stat.matched for each in steps if not targets or each.stat.key.target in targets)


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


def _starts(period: Period, scope: Scope, now: datetime) -> tuple[list[datetime], timedelta]:
    """Return the starts of the complete steps in a period, and the length of a step."""
    length = period.until - period.since
    kept = next((each for each, age in _KEPT[scope] if now - period.since <= age), _DAY)
    step = next((each for each, longest in _STEPS if length <= longest and each >= kept), _DAY)
    until = start_of_step(period.until, step)
    count = max(1, min(-(-length // step), MAX_PERIOD // step))
    return [until - step * back for back in range(count, 0, -1)], step


def start_of_step(at: datetime, step: timedelta) -> datetime:
    """Return the latest time, at most `at`, that is a multiple of `step` since 1970."""
    return at - (at - _EPOCH) % step


def _times(starts: Sequence[datetime], step: timedelta) -> list[datetime]:
    """Return the times at which a stat of some steps may begin: by minute, by hour and, for steps of a day, by day."""
    first, until = starts[0], starts[-1] + step
    hours = {first + _HOUR * number for number in range((until - first) // _HOUR)} if step >= _HOUR else set(starts)
    recent = max(first, until - _KEPT_MINUTES)
    minutes = {recent + _MINUTE * number for number in range((until - recent) // _MINUTE)}
    return sorted(hours | minutes)


def _timeline(
    starts: Sequence[datetime], step: timedelta, found: Sequence[StatsStep], began_at: datetime | None
) -> Timeline:
    by_step: dict[int, list[Stat]] = defaultdict(list)
    for each in found:
        by_step[each.step].append(each.stat)
    steps = (_step(at, by_step[number], step / _MINUTE) for number, at in enumerate(starts))
    return Timeline(
        step,
        tuple(replace(each, is_known=began_at is not None and each.at + step > began_at) for each in steps),
    )


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
