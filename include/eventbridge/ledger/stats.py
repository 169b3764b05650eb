"""Stores stats in the ledger. Commits add them, upkeep folds them into hours and days, and the page shows sums."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.batches import batch, batch_range
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import BY_KEY, UtcTime, insert_or_add, metadata, microseconds, period_condition
from eventbridge.model.stat import BOUNDS_MS, GRAIN_LENGTHS, Grain, Scope, Stat, StatAt, StatKey, StatsStep

#: The latency buckets' columns, in the order of their bounds.
BUCKET_COLUMNS = (*(f"within_{bound}" for bound in BOUNDS_MS), "later")

#: The columns that are added up if two stats have the same key.
SUMS = ("count", "matched", "size", "cpu", "latency", *BUCKET_COLUMNS)

#: Counts by time. The time precedes the names in the key, so that the rows of one commit are adjacent, as are old rows.
stat = sa.Table(
    "stat",
    metadata,
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("grain", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
    sa.PrimaryKeyConstraint("scope", "grain", "at", "bus", "rule", "target", "outcome"),
    **BY_KEY,
)

_c = stat.c

#: Adds stats to the existing rows of their keys.
ADD_STATS = insert_or_add(stat, SUMS)

_NAMES = (_c.bus, _c.rule, _c.target, _c.outcome)
_AT_PERIOD = (
    (_c.scope == sa.bindparam("of_scope")) & (_c.grain == sa.bindparam("of_grain")) & (_c.at == sa.bindparam("of_at"))
)
_OLD = _AT_PERIOD & (
    sa.tuple_(*_NAMES) <= sa.tuple_(*(sa.bindparam(f"to_{each.name}", type_=sa.Text) for each in _NAMES))
)

#: The oldest period of a scope and grain.
OLDEST = sa.select(sa.func.min(_c.at)).where(_c.scope == sa.bindparam("of_scope"), _c.grain == sa.bindparam("of_grain"))

#: The keys of the first rows in one period.
FIRST_ROWS = sa.select(*_NAMES).where(_AT_PERIOD).order_by(*_NAMES).limit(sa.bindparam("most"))

#: Adds the stats of one period, up to a given row, to the longer period that contains it.
FOLD = insert_or_add(
    stat,
    SUMS,
    sa.select(
        _c.scope,
        sa.bindparam("to_grain", type_=sa.Text),
        sa.bindparam("to_at", type_=UtcTime),
        *(_c[name] for name in ("bus", "rule", "target", "outcome", *SUMS)),
    ).where(_OLD),
)

#: The number of rows of a scope.
ROWS = sa.select(sa.func.count()).select_from(stat).where(_c.scope == sa.bindparam("of_scope"))

_DAY = 86_400_000_000

#: Stats of targets from `since` (included) to `until` (excluded).
_OF_TARGETS = (_c.scope == sa.literal("target"), period_condition(_c.at), _c.grain.in_(["minute", "hour", "day"]))

#: The names of rules that have stats in a period, in order, after a given name.
RULES_BEHIND = (
    sa.select(_c.rule)
    .distinct()
    .where(*_OF_TARGETS, _c.rule > sa.bindparam("after"))
    .order_by(_c.rule)
    .limit(sa.bindparam("most"))
)

_SUMMED = tuple(sa.func.sum(_c[name]).label(name) for name in SUMS)
_OF_DAY = ("day", _c.bus, _c.rule, _c.outcome)

#: The sums for the rules from `first` to `last` (included) by day (days since 1970), bus, rule and outcome.
BY_DAY = (
    sa.select((sa.type_coerce(_c.at, sa.BigInteger) // _DAY).label("day"), *_OF_DAY[1:], *_SUMMED)
    .where(*_OF_TARGETS, _c.rule >= sa.bindparam("first"), _c.rule <= sa.bindparam("last"))
    .group_by(*_OF_DAY)
    .order_by(*_OF_DAY)
)


def select_summed(scope: str, by: tuple[str, ...], *, ranged: bool = False) -> sa.Select[Any]:
    """Return the query for the sums of a scope by some columns.

    If `ranged`, it adds up only stats from `since` (included) to `until` (excluded).
    """
    names = [_c[name] for name in by]
    found = sa.select(*names, *_SUMMED).where(_c.scope == sa.literal(scope))
    if ranged:
        found = found.where(period_condition(_c.at), _c.grain != sa.literal("ever"))
    return found.group_by(*names).order_by(*names)


def select_timeline(scope: str, times: Sequence[datetime], step: int, on: tuple[str, str] | None) -> sa.Select[Any]:
    """Return the query for the sums of a scope by slot, target and outcome; slot 0 begins at the first time.

    `step` is the length of a slot in microseconds. `on` limits the query to a bus and a rule, which it looks up at each
    time, so that it reads no rows of other rules.
    """
    first = microseconds(times[0])
    slot = ((sa.type_coerce(_c.at, sa.BigInteger) - first) // step).label("slot")
    by = ("slot", _c.target, _c.outcome)  # the label, because PostgreSQL distinguishes expressions with parameters
    found = sa.select(slot, *by[1:], *_SUMMED)
    grains = ["minute", "hour", *(["day"] if step >= _DAY else [])]  # a shorter step cannot hold the stat of a day
    found = found.where(_c.scope == sa.literal(scope), _c.grain.in_(grains))
    if on is None:
        found = found.where(_c.at >= times[0], _c.at <= times[-1])
    else:
        found = found.where(_c.at.in_(times), _c.bus == on[0], _c.rule == on[1])
    return found.group_by(*by).order_by(*by)


def select_outcomes(times: Sequence[datetime], buses: Sequence[str], rules: Sequence[str]) -> sa.Select[Any]:
    """Return the query for the sums of rules at the given times, by rule, target and outcome.

    Each rule is looked up at each time, so that no rows of other rules are read.
    """
    by = (_c.bus, _c.rule, _c.target, _c.outcome)
    found = sa.select(*by, *_SUMMED).where(
        _c.scope == sa.literal("target"),
        _c.grain.in_(["minute", "hour"]),
        _c.at.in_(times),
        _c.bus.in_(buses),
        _c.rule.in_(rules),
    )
    return found.group_by(*by)


def select_of_rule(times: Sequence[datetime]) -> sa.Select[Any]:
    """Return the query for the stats of a rule's targets that begin at the given times: by minute, hour and day.

    Each time is looked up, so that no rows of other rules are read.
    """
    by = (_c.grain, _c.at, *_NAMES)
    found = sa.select(*by, *(_c[name] for name in SUMS)).where(
        _c.scope == sa.literal("target"),
        _c.grain.in_(["minute", "hour", "day"]),
        _c.at.in_(times),
        _c.bus == sa.bindparam("of_bus"),
        _c.rule == sa.bindparam("of_rule"),
    )
    return found.order_by(*by)


#: The number of offsets that normal batches, planned since `planned` and committed since `since`, moved their runners
#: on.
MOVED_SINCE = (
    sa.select(sa.func.coalesce(sa.func.sum(batch_range.c.end_offset - batch_range.c.start_offset), 0))
    .join(batch, batch.c.batch_id == batch_range.c.batch_id)
    .where(
        batch.c.planned_at >= sa.bindparam("planned", type_=UtcTime),
        batch.c.committed_at >= sa.bindparam("since", type_=UtcTime),
        batch.c.kind == sa.literal("normal"),
    )
)

#: The maximum number of rows that one transaction folds; other writers wait a few milliseconds for it.
ROWS_AT_ONCE = 500

#: A period longer than any batch takes from planning to commit.
_MAX_BATCH_TIME = timedelta(days=30)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stats(Aggregate):
    """Counts of events and deliveries by time."""

    def fold(self, scope: Scope, grain: Grain, to: Grain, before: datetime) -> int | None:
        """Fold the oldest period of a grain into the longer period that contains it; return how many rows it had.

        Returns None if no period of the grain began before `before`. Each of several transactions moves some rows, so
        that at any moment every delivery is counted in exactly one row of its scope.
        """
        of: dict[str, Any] = {"of_scope": scope, "of_grain": grain}
        with self._reading() as connection:
            at: datetime | None = connection.execute(OLDEST, of).scalar()
        if at is None or at >= before:
            return None
        of |= {"of_at": at, "most": ROWS_AT_ONCE, "to_grain": to, "to_at": start_of(to, at)}
        folded = 0
        while True:
            with self._writing() as connection:
                rows = connection.execute(FIRST_ROWS, of).all()
                if not rows:
                    return folded
                last = {f"to_{name}": value for name, value in rows[-1]._mapping.items()}
                connection.execute(FOLD, of | last)
                folded += connection.execute(sa.delete(stat).where(_OLD), of | last).rowcount

    def began_at(self, scope: Scope) -> datetime | None:
        """Return when the oldest stat of a scope that has a time begins; None if there is none."""
        with self._reading() as connection:
            found = [
                connection.execute(OLDEST, {"of_scope": scope, "of_grain": each}).scalar() for each in GRAIN_LENGTHS
            ]
        return min((each for each in found if each is not None), default=None)

    def row_count(self, scope: Scope) -> int:
        """Return the number of rows of a scope."""
        with self._reading() as connection:
            return int(connection.execute(ROWS, {"of_scope": scope}).scalar_one())

    def list_between(self, scope: Scope, since: datetime, until: datetime) -> list[StatAt]:
        """Return the stats from `since` (included) to `until` (excluded): by minute, hour or day, as stored."""
        by = ("grain", "at", "bus", "rule", "target", "outcome")
        rows = self._rows(select_summed(scope, by, ranged=True), {"since": since, "until": until})
        return [StatAt(row.grain, row.at, _stat(scope, row)) for row in rows]

    def rules_with_stats(self, since: datetime, until: datetime, after: str, limit: int) -> list[str]:
        """Return the names of at most `limit` rules that have stats in a period, in order, after the name `after`."""
        of = {"since": since, "until": until, "after": after, "most": limit}
        with self._reading() as connection:
            return list(connection.scalars(RULES_BEHIND, of))

    def list_by_day(self, since: datetime, until: datetime, first: str, last: str) -> list[StatAt]:
        """Return the stats of the rules from one name to another for each day, by outcome, over all their targets."""
        of = {"since": since, "until": until, "first": first, "last": last}
        return [
            StatAt("day", _EPOCH + timedelta(days=row.day), _stat_of(_rule_key(row), row))
            for row in self._rows(BY_DAY, of)
        ]

    def list_for_rule(self, bus: str, rule: str, times: Sequence[datetime]) -> list[StatAt]:
        """Return the stats of a rule's targets that begin at the given times: by minute, hour or day, as stored."""
        rows = self._rows(select_of_rule(times), {"of_bus": bus, "of_rule": rule})
        return [StatAt(row.grain, row.at, _stat("target", row)) for row in rows]

    def timeline(
        self, scope: Scope, times: Sequence[datetime], step: timedelta, rule: tuple[str, str] | None = None
    ) -> list[StatsStep]:
        """Return the stats from the first to the last given time, by step since the first time, target and outcome.

        If `rule` (a bus and a rule) is set, it returns only that rule's stats that begin at one of the given times.
        """
        query = select_timeline(scope, times, step // timedelta(microseconds=1), rule)
        bus, name = rule or ("", "")
        return [
            StatsStep(int(row.slot), _stat_of(StatKey(scope, bus, name, row.target, row.outcome), row))
            for row in self._rows(query)
        ]

    def outcomes(self, times: Sequence[datetime], rules: Collection[tuple[str, str]]) -> list[Stat]:
        """Return the sums of rules (each with its bus) at the given times, by rule, target and outcome."""
        buses, names = ({each[index] for each in rules} for index in (0, 1))
        query = select_outcomes(times, sorted(buses), sorted(names))
        return [
            _stat_of(StatKey("target", row.bus, row.rule, row.target, row.outcome), row) for row in self._rows(query)
        ]

    def count_moved_since(self, since: datetime) -> tuple[int, list[StatAt]]:
        """Return by how much batches have moved committed offsets since the given time, and the stats of buses since
        then."""
        by = ("grain", "at", "bus", "rule", "target", "outcome")
        until = since + _MAX_BATCH_TIME
        with self._reading() as connection:
            moved = connection.execute(MOVED_SINCE, {"planned": since - _MAX_BATCH_TIME, "since": since}).scalar_one()
            rows = connection.execute(select_summed("bus", by, ranged=True), {"since": since, "until": until})
            return int(moved), [StatAt(row.grain, row.at, _stat("bus", row)) for row in rows]


def add_stats(connection: sa.Connection, stats: Sequence[Stat], now: datetime) -> None:
    """Add stats to the stats of the minute, in the order of their keys, so that two commits cannot deadlock.

    It calls the driver directly because, for 10,000 rules, SQLAlchemy would take four times as long to fill in the
    statement as the database takes to run it.
    """
    if not stats:
        return
    at = microseconds(start_of("minute", now))
    rows = sorted(_row(each, at) for each in stats)
    compiled = ADD_STATS.compile(dialect=connection.dialect)
    if compiled.positional:
        connection.exec_driver_sql(str(compiled), rows)
    else:
        names = stat.columns.keys()
        connection.exec_driver_sql(str(compiled), [dict(zip(names, row, strict=True)) for row in rows])


def start_of(grain: Grain, at: datetime) -> datetime:
    """Return the start of a grain's period that contains the given time; 1970 for `ever`."""
    length = GRAIN_LENGTHS.get(grain)
    return _EPOCH if length is None else at - (at - _EPOCH) % length


def stats_ever(connection: sa.Connection, scope: Scope) -> list[Stat]:
    """Return the all-time sums for each key in a scope, in the caller's transaction."""
    rows = connection.execute(select_summed(scope, ("bus", "rule", "target", "outcome")))
    return [_stat(scope, row) for row in rows]


def _row(entry: Stat, at: int) -> tuple[str | int, ...]:
    """Return a stat as the values of its table's columns, in their order."""
    key = entry.key
    named = (key.scope, "minute", at, key.bus, key.rule, key.target, key.outcome)
    return (*named, entry.count, entry.matched, entry.size, entry.cpu, entry.latency, *entry.buckets)


def _rule_key(row: sa.Row[Any]) -> StatKey:
    return StatKey("target", row.bus, row.rule, "", row.outcome)


def _stat(scope: Scope, row: sa.Row[Any]) -> Stat:
    return _stat_of(StatKey(scope, row.bus, row.rule, row.target, row.outcome), row)


def _stat_of(key: StatKey, row: sa.Row[Any]) -> Stat:
    values = row._mapping
    count, matched, size, cpu, latency, *buckets = (int(values[name]) for name in SUMS)
    return Stat(key, count, matched, size, cpu, latency, tuple(buckets))
