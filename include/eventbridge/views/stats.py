"""Returns the stats of rules and buses by day, with the cost of each rule, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.model.stat import EVENT_OUTCOMES, StatAt
from eventbridge.rules.find import find_rule
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import day_of
from eventbridge.runtime.visibility import visibility_of

_MINUTES = 26 * 60
#: A limit that includes the rules of any installation.
_ALL = 10**9


@dataclass(frozen=True)
class RuleDay:
    """The cost of a rule on a day (UTC): `matched` counts its deliveries, and `size` counts the bytes of their
    payloads.

    `pending` counts each deferral. `mean_seconds` is the mean time from published to delivered, or None without
    deliveries.
    """

    day: datetime
    bus: str
    rule: str
    matched: int
    delivered: int
    dead_lettered: int
    pending: int
    size: int
    cpu_seconds: float
    mean_seconds: float | None


@dataclass(frozen=True)
class BusDay:
    """The events, and their bytes, that the runners of a bus landed on a day (UTC)."""

    day: datetime
    bus: str
    valid: int
    duplicate: int
    malformed: int
    tombstone: int
    gap: int
    size: int


@dataclass(frozen=True)
class Stats:
    """The output of `eventbridge stats`; days are in UTC, and the last one ends now."""

    since: datetime
    until: datetime
    rules: tuple[RuleDay, ...]
    buses: tuple[BusDay, ...]


def stats_document(found: Stats) -> dict[str, object]:
    """Return stats as `eventbridge stats --json` and the API show them."""
    return {"from": found.since, "to": found.until, "rules": found.rules, "buses": found.buses}


def daily_stats(runtime: Runtime, days: int, rule: str | None = None) -> Stats:
    """Return the stats of the last days, today included, only of `rule` if it is set.

    Raises NotFoundError for an unknown rule.
    """
    found, _ = stats_page(runtime, days, rule)
    return found


def stats_page(
    runtime: Runtime, days: int, rule: str | None = None, limit: int | None = None, cursor: str | None = None
) -> tuple[Stats, str | None]:
    """Return the stats of at most `limit` rules over the last days, and the cursor of the next page, or None on the
    last.

    Raises NotFoundError for an unknown rule, UserError for an invalid cursor.
    """
    if rule is not None:
        find_rule(runtime.rule_set(), rule)
    now = runtime.clock()
    since = day_of(now) - timedelta(days=days - 1)
    (after,) = read_name_cursor(cursor, 1) if cursor else ("",)
    names = [rule] if rule is not None else _names(runtime, since, now, after, (limit or _ALL) + 1)
    shown = names[:limit]
    following = write_name_cursor(shown[-1]) if len(names) > len(shown) else None
    return Stats(since, now, _rule_days(runtime, since, now, shown), _bus_days(runtime, since, now, rule)), following


def _names(runtime: Runtime, since: datetime, now: datetime, after: str, limit: int) -> list[str]:
    """Return the first rules after a name; callers who are limited to owners get no names of other owners."""
    own = visibility_of(runtime).rules
    if own is None:
        return runtime.ledger.stats.rules_with_stats(since, now, after, limit)
    return sorted(name for name in own if name > after)[:limit]


def _rule_days(runtime: Runtime, since: datetime, now: datetime, names: list[str]) -> tuple[RuleDay, ...]:
    visibility = visibility_of(runtime)
    found: dict[tuple[datetime, str, str], list[StatAt]] = defaultdict(list)
    for each in runtime.ledger.stats.list_by_day(since, now, names[0], names[-1]) if names else ():
        if visibility.rule(each.stat.key.rule):
            found[each.at, each.stat.key.bus, each.stat.key.rule].append(each)
    return tuple(_rule_day(*key, of) for key, of in sorted(found.items()))


def _bus_days(runtime: Runtime, since: datetime, now: datetime, rule: str | None) -> tuple[BusDay, ...]:
    visibility = visibility_of(runtime)
    found: dict[tuple[datetime, str], list[StatAt]] = defaultdict(list)
    for each in runtime.ledger.stats.list_between("bus", since, now) if rule is None else ():
        if each.stat.key.outcome in EVENT_OUTCOMES and visibility.bus(each.stat.key.bus):
            found[day_of(each.at), each.stat.key.bus].append(each)
    return tuple(_bus_day(*key, of) for key, of in sorted(found.items()))


def rule_days(runtime: Runtime, rule: str, days: int) -> list[RuleDay]:
    """Return the cost of a rule on the last days, newest first, today included. Raises NotFoundError if it is unknown.

    Minutes are read only for the last 26 hours, because `maintain` has folded older ones into hours.
    """
    found = find_rule(runtime.rule_set(), rule)
    now = runtime.clock()
    since = day_of(now) - timedelta(days=days - 1)
    minute, hour = now.replace(second=0, microsecond=0), now.replace(minute=0, second=0, microsecond=0)
    times = {minute - timedelta(minutes=back) for back in range(_MINUTES)}
    times |= {hour - timedelta(hours=back) for back in range(24 * days)}
    by_day: dict[datetime, list[StatAt]] = defaultdict(list)
    for each in runtime.ledger.stats.list_for_rule(found.bus, rule, sorted(each for each in times if each >= since)):
        by_day[day_of(each.at)].append(each)
    return [_rule_day(day, found.bus, rule, by_day[day]) for day in sorted(by_day, reverse=True)]


def _rule_day(day: datetime, bus: str, rule: str, stats: list[StatAt]) -> RuleDay:
    counts = _counts(stats)
    latency = sum(each.stat.latency for each in stats)
    timed = sum(sum(each.stat.buckets) for each in stats)
    return RuleDay(
        day=day,
        bus=bus,
        rule=rule,
        matched=sum(each.stat.matched for each in stats),
        delivered=counts["delivered"],
        dead_lettered=counts["dead_lettered"],
        pending=counts["pending"],
        size=sum(each.stat.size for each in stats),
        cpu_seconds=sum(each.stat.cpu for each in stats) / 1e6,
        mean_seconds=latency / timed / 1e6 if timed else None,
    )


def _bus_day(day: datetime, bus: str, found: list[StatAt]) -> BusDay:
    counts = _counts(found)
    events = {outcome: counts[outcome] for outcome in EVENT_OUTCOMES}
    return BusDay(day, bus, **events, size=sum(each.stat.size for each in found))


def _counts(found: list[StatAt]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for each in found:
        counts[each.stat.key.outcome] += each.stat.count
    return counts
