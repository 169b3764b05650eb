"""Stats in the ledger: added by commit, folded into hours and days by upkeep, summed for the page and metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.ledger.columns import microseconds
from eventbridge.ledger.database import Database
from eventbridge.ledger.stat_table import SUMS, stat
from eventbridge.ledger.statements import stats as statements
from eventbridge.model.stat import GRAIN_LENGTHS, Grain, Scope, Stat, StatAt, StatKey, StatsStep

#: Rows that one transaction folds: other writers wait for it, some milliseconds.
ROWS_AT_ONCE = 500

#: A batch takes less than this from planned to committed.
_LONG = timedelta(days=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def add_stats(connection: Connection, stats: Sequence[Stat], now: datetime) -> None:
    """Add stats to those of the minute, in the order of their keys, so that two commits cannot deadlock.

    It calls the driver directly: for 10,000 rules SQLAlchemy would take four times as long to fill in the statement as
    the database to run it.
    """
    if not stats:
        return
    at = microseconds(start_of("minute", now))
    rows = sorted(_row(each, at) for each in stats)
    compiled = statements.ADD_STATS.compile(dialect=connection.dialect)
    if compiled.positional:
        connection.exec_driver_sql(str(compiled), rows)
    else:
        names = stat.columns.keys()
        connection.exec_driver_sql(str(compiled), [dict(zip(names, row, strict=True)) for row in rows])


def start_of(grain: Grain, at: datetime) -> datetime:
    """Return the start of the period of a grain that holds a moment; 1970 for `ever`."""
    length = GRAIN_LENGTHS.get(grain)
    return _EPOCH if length is None else at - (at - _EPOCH) % length


class Stats(Database):
    """The part of the ledger about stats."""

    def fold_stats(self, scope: Scope, grain: Grain, to: Grain, before: datetime) -> int | None:
        """Add the oldest period of a grain to the longer one that holds it; return its rows, or None if none is so old.

        Each transaction folds some rows, so that every delivery is counted in one row of its scope at any moment.
        """
        of: dict[str, Any] = {"of_scope": scope, "of_grain": grain}
        with self._reading() as connection:
            at: datetime | None = connection.execute(statements.OLDEST, of).scalar()
        if at is None or at >= before:
            return None
        of |= {"of_at": at, "most": ROWS_AT_ONCE, "to_grain": to, "to_at": start_of(to, at)}
        folded = 0
        while True:
            with self._writing() as connection:
                rows = connection.execute(statements.FIRST_ROWS, of).all()
                if not rows:
                    return folded
                last = {f"to_{name}": value for name, value in rows[-1]._mapping.items()}
                connection.execute(statements.FOLD, of | last)
                folded += connection.execute(statements.DROP_FOLDED, of | last).rowcount

    def stat_rows(self, scope: Scope) -> int:
        """Return the number of rows of a scope."""
        with self._reading() as connection:
            return int(connection.execute(statements.ROWS, {"of_scope": scope}).scalar_one())

    def stats(self, scope: Scope) -> list[Stat]:
        """Return the all-time sums of each key of a scope; they only grow."""
        with self._reading() as connection:
            return stats_ever(connection, scope)

    def stats_between(self, scope: Scope, since: datetime, until: datetime) -> list[StatAt]:
        """Return the stats that begin at or after a time and before another: by minute, hour or day, as stored."""
        by = ("grain", "at", "bus", "rule", "target", "outcome")
        with self._reading() as connection:
            rows = connection.execute(statements.summed(scope, by, ranged=True), {"since": since, "until": until})
            return [StatAt(row.grain, row.at, _stat(scope, row)) for row in rows]

    def rules_with_stats(self, since: datetime, until: datetime, after: str, most: int) -> list[str]:
        """Return at most `most` names, after `after`, of rules that have stats in a period."""
        of = {"since": since, "until": until, "after": after, "most": most}
        with self._reading() as connection:
            return list(connection.scalars(statements.RULES_BEHIND, of))

    def stats_by_day(self, since: datetime, until: datetime, first: str, last: str) -> list[StatAt]:
        """Return the stats of the rules from one name to another for each day, by outcome, over all their targets."""
        of = {"since": since, "until": until, "first": first, "last": last}
        with self._reading() as connection:
            return [
                StatAt("day", _EPOCH + timedelta(days=row.day), _of(_of_rule(row), row))
                for row in connection.execute(statements.BY_DAY, of)
            ]

    def stats_of_rule(self, bus: str, rule: str, times: Sequence[datetime]) -> list[StatAt]:
        """Return the stats of a rule's targets that begin at the given times: by minute, hour or day, as stored."""
        with self._reading() as connection:
            rows = connection.execute(statements.of_rule(times), {"of_bus": bus, "of_rule": rule})
            return [StatAt(row.grain, row.at, _stat("target", row)) for row in rows]

    def stat_timeline(
        self, scope: Scope, times: Sequence[datetime], step: timedelta, rule: tuple[str, str] | None = None
    ) -> list[StatsStep]:
        """Return the stats that begin at or between the given times, by step from the first on, and by outcome.

        `rule`: only of this bus and rule, and then also by target.
        """
        query = statements.timeline(scope, times, step // timedelta(microseconds=1), rule)
        bus, name = rule or ("", "")
        with self._reading() as connection:
            return [
                StatsStep(int(row.slot), _of(StatKey(scope, bus, name, row.target, row.outcome), row))
                for row in connection.execute(query)
            ]

    def outcomes_of(self, times: Sequence[datetime], rules: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return the counts of deliveries of rules (each with its bus) at the given minutes, by rule and outcome."""
        buses, names = ({each[place] for each in rules} for place in (0, 1))
        query = statements.outcomes(times, sorted(buses), sorted(names))
        with self._reading() as connection:
            return {(row.rule, row.outcome): int(row.deliveries) for row in connection.execute(query)}

    def moved_since(self, since: datetime) -> tuple[int, list[StatAt]]:
        """Return how many events batches moved their offsets past since a time, and the stats of buses since then."""
        by = ("grain", "at", "bus", "rule", "target", "outcome")
        until = since + _LONG
        with self._reading() as connection:
            moved = connection.execute(statements.MOVED_SINCE, {"planned": since - _LONG, "since": since}).scalar_one()
            rows = connection.execute(statements.summed("bus", by, ranged=True), {"since": since, "until": until})
            return int(moved), [StatAt(row.grain, row.at, _stat("bus", row)) for row in rows]


def stats_ever(connection: Connection, scope: Scope) -> list[Stat]:
    """Return the all-time sums of each key of a scope, in a transaction of the caller."""
    rows = connection.execute(statements.summed(scope, ("bus", "rule", "target", "outcome")))
    return [_stat(scope, row) for row in rows]


def _row(each: Stat, at: int) -> tuple[str | int, ...]:
    """Return a stat as the values of its table's columns, in their order."""
    key = each.key
    named = (key.scope, "minute", at, key.bus, key.rule, key.target, key.outcome)
    return (*named, each.count, each.matched, each.size, each.cpu, each.latency, *each.buckets)


def _of_rule(row: Row[Any]) -> StatKey:
    return StatKey("target", row.bus, row.rule, "", row.outcome)


def _stat(scope: Scope, row: Row[Any]) -> Stat:
    return _of(StatKey(scope, row.bus, row.rule, row.target, row.outcome), row)


def _of(key: StatKey, row: Row[Any]) -> Stat:
    values = row._mapping
    count, matched, size, cpu, latency, *buckets = (int(values[name]) for name in SUMS)
    return Stat(key, count, matched, size, cpu, latency, tuple(buckets))
