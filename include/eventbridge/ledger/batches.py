"""Stores batches in the ledger: plans them, moves them from state to state, and records their ranges of offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from eventbridge.errors import NotFoundError
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    NOW,
    UtcTime,
    insert,
    insert_or_skip,
    metadata,
    one_of,
    partial,
    period_condition,
    to_partition,
    word,
)
from eventbridge.ledger.offsets import offsets_of, select_offsets
from eventbridge.ledger.rules import HOLD_RULES
from eventbridge.model.batch import Batch, BatchKind, BatchState, Range
from eventbridge.model.partition import Move, Partition

batch = sa.Table(
    "batch",
    metadata,
    sa.Column("batch_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("rule_set", sa.Text, nullable=False),
    sa.Column("planned_at", UtcTime, nullable=False),
    sa.Column("deadline_at", UtcTime),
    sa.Column("replay_id", sa.Text, nullable=False),
    sa.Column("committed_at", UtcTime),
    sa.Column("bus_committed_at", UtcTime),
    sa.Column("kept", sa.Text, nullable=False, server_default="all"),
    sa.Column("remaining", sa.Text, nullable=False, server_default="all"),
    sa.Column("is_full", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("in_index", sa.Text, nullable=False, server_default="no"),
    sa.Column("follows", sa.Text),
    one_of("kind", BatchKind),
    one_of("state", BatchState),
)
UNCOMMITTED = batch.c.state != word("committed")

NORMAL_UNCOMMITTED = (batch.c.kind == word("normal")) & UNCOMMITTED & batch.c.follows.is_(None)

BUS_COMMIT_OUTSTANDING = (
    (batch.c.kind == word("normal")) & (batch.c.state == word("committed")) & batch.c.bus_committed_at.is_(None)
)
# The first index prevents two listens of a runner from planning the same offsets. A following batch begins where the
# previous batch ends.
partial("uq_batch_normal", NORMAL_UNCOMMITTED, batch.c.runner, unique=True)
partial("uq_batch_follows", batch.c.follows.is_not(None), batch.c.follows, unique=True)
partial("ix_batch_uncommitted", UNCOMMITTED, batch.c.kind, batch.c.runner)
partial("ix_batch_bus_commit_outstanding", BUS_COMMIT_OUTSTANDING, batch.c.runner)
sa.Index("ix_batch_newest", batch.c.planned_at, batch.c.batch_id)
RETRY = batch.c.kind == word("retry")
partial("ix_batch_newest_retry", RETRY, batch.c.planned_at, batch.c.batch_id)

#: Batches with records that retention no longer keeps but that are not all removed yet; the next run of `maintain`
#: removes them.
REMOVAL_PENDING = batch.c.kept != batch.c.remaining
partial("ix_batch_removal_pending", REMOVAL_PENDING, batch.c.batch_id)

#: Batches whose archive is not in the index of event ids; searches for events read their archive files directly.
UNINDEXED = (
    (batch.c.kind == word("normal"))
    & (batch.c.in_index == word("no"))
    & batch.c.kept.in_([word("all"), word("archive")])
)
partial("ix_batch_unindexed", UNINDEXED, batch.c.planned_at, batch.c.batch_id)
#: `maintain` finds expired batches by this index, at a cost that does not depend on the number of other batches.
sa.Index("ix_batch_kept", batch.c.kept, batch.c.runner, batch.c.bus, batch.c.planned_at, batch.c.batch_id)
sa.Index("ix_batch_rule_set", batch.c.rule_set)

batch_range = sa.Table(
    "batch_range",
    metadata,
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("topic_name", sa.Text, nullable=False),
    sa.Column("broker_name", sa.Text, nullable=False),
    sa.Column("partition_id", sa.Integer, nullable=False),
    sa.Column("start_offset", sa.BigInteger, nullable=False),
    sa.Column("end_offset", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("batch_id", "topic_name", "broker_name", "partition_id"),
    sa.CheckConstraint("end_offset >= start_offset", name="forward"),
)

_BATCH = batch.c.batch_id == sa.bindparam("of_batch")

#: One batch.
BATCH = sa.select(batch).where(_BATCH)

#: The state of a batch, locked until the transaction ends.
BATCH_STATE = sa.select(batch.c.state).where(_BATCH).with_for_update(read=True)

#: The batches that were planned in a period.
BATCHES_BETWEEN = (
    sa.select(batch).where(period_condition(batch.c.planned_at)).order_by(batch.c.planned_at, batch.c.batch_id)
)

#: The condition for batches that were planned before the end of a period and not committed before its beginning. No
#: index serves it, because a batch may take any time; a query over a year of batches reads half a million short rows.
AT_WORK = (batch.c.planned_at < sa.bindparam("until", type_=UtcTime)) & (
    UNCOMMITTED | (batch.c.committed_at >= sa.bindparam("since", type_=UtcTime))
)

#: The batches that were at work in a period.
BATCHES_AT_WORK = sa.select(batch).where(AT_WORK).order_by(batch.c.planned_at, batch.c.batch_id)

_newest_committed = (
    sa.select(batch)
    .where(
        batch.c.runner == sa.bindparam("of_runner"), batch.c.kind == word("normal"), batch.c.state == word("committed")
    )
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(sa.bindparam("most"))
    .subquery()
)

#: The moves of each partition by the newest committed batches of a runner, newest batch first.
MOVES = (
    sa.select(
        batch_range, _newest_committed.c.planned_at, _newest_committed.c.committed_at, _newest_committed.c.is_full
    )
    .join(batch_range, batch_range.c.batch_id == _newest_committed.c.batch_id)
    .order_by(_newest_committed.c.planned_at.desc(), *batch_range.primary_key)
)

#: The one uncommitted normal batch of a runner that follows no other batch.
UNFINISHED_BATCH = sa.select(batch).where(batch.c.runner == sa.bindparam("of_runner"), NORMAL_UNCOMMITTED)

#: Adds a batch, unless its runner has another uncommitted normal one.
PLAN_BATCH = insert_or_skip(batch)

#: Adds a batch.
INSERT_BATCH = insert(batch)

#: Adds the ranges of a batch.
INSERT_RANGES = insert(batch_range)

#: The ranges of a batch, in order of their partitions.
RANGES = (
    sa.select(batch_range).where(batch_range.c.batch_id == sa.bindparam("of_batch")).order_by(*batch_range.primary_key)
)

#: The retry batch that was planned last.
NEWEST_RETRY = (
    sa.select(batch.c.batch_id).where(RETRY).order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(1)
)

#: Moves a batch from one state to another (compare and set). A batch that follows an uncommitted one is not moved.
MOVE_BATCH = (
    sa.update(batch)
    .where(_BATCH, batch.c.state == sa.bindparam("expected"), batch.c.follows.is_(None))
    .values(state=sa.bindparam("to"))
)

#: Moves a batch from `buffered` to `routed` and sets its deadline (compare and set).
PUBLISH_ROUTED = (
    sa.update(batch)
    .where(_BATCH, batch.c.state == "buffered")
    .values(state="routed", deadline_at=sa.bindparam("deadline", type_=UtcTime))
)

#: Moves a batch from `settling` to `committed` (compare and set).
PUBLISH_COMMITTED = (
    sa.update(batch).where(_BATCH, batch.c.state == "settling").values(state="committed", committed_at=NOW)
)

#: Makes the batch that follows a committed one the current batch of its runner.
RELEASE_FOLLOWING = (
    sa.update(batch).where(batch.c.follows == sa.bindparam("of_batch")).values(follows=None).returning(batch.c.batch_id)
)

#: Records when the offsets of a committed batch were committed to the bus; a recorded time is not replaced.
MARK_BUS_COMMITTED = (
    sa.update(batch)
    .where(_BATCH, batch.c.state == "committed", batch.c.bus_committed_at.is_(None))
    .values(bus_committed_at=NOW)
)

#: Committed batches of a runner whose offsets are not committed to its bus yet, oldest first.
BUS_COMMITS_OUTSTANDING = (
    sa.select(batch)
    .where(batch.c.runner == sa.bindparam("of_runner"), BUS_COMMIT_OUTSTANDING)
    .order_by(batch.c.planned_at, batch.c.batch_id)
)

#: The condition for batches that were planned before a given batch.
OLDER = sa.tuple_(batch.c.planned_at, batch.c.batch_id) < sa.tuple_(
    sa.bindparam("before_at", type_=UtcTime), sa.bindparam("before_batch", type_=sa.Text)
)


def select_ids(beginning: str, limit: int) -> sa.Select[Any]:
    """Return the query for at most `limit` batch ids that start with the string `beginning`, newest batch first."""
    return (
        sa.select(batch.c.batch_id)
        .where(batch.c.batch_id.startswith(beginning, autoescape=True))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
        .limit(limit)
    )


def select_batches(limit: int | None, runner: str | None, state: str | None, *, older: bool = False) -> sa.Select[Any]:
    """Return the query for batches, newest first; if `older`, only those planned before a given batch."""
    found = sa.select(batch).order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(limit)
    if older:
        found = found.where(OLDER)
    if runner is not None:
        found = found.where(batch.c.runner == runner)
    return found if state is None else found.where(batch.c.state == state)


def select_overdue(kinds: Collection[str], runner: str | None) -> sa.Select[Any]:
    """Return the query for uncommitted batches whose deadline is before `now`, the longest overdue first."""
    found = (
        sa.select(batch)
        .where(UNCOMMITTED, batch.c.kind.in_(sorted(kinds)), batch.c.deadline_at < NOW)
        .order_by(batch.c.deadline_at, batch.c.batch_id)
    )
    return found if runner is None else found.where(batch.c.runner == runner)


#: Uncommitted batches, oldest first.
OPEN_BATCHES = sa.select(batch).where(UNCOMMITTED).order_by(batch.c.planned_at, batch.c.batch_id)

#: The lowest start offset that is recorded for each runner in each partition of a bus.
FIRST_OFFSETS: sa.Select[Any] = (
    sa.select(
        batch.c.runner,
        batch_range.c.topic_name,
        batch_range.c.broker_name,
        batch_range.c.partition_id,
        sa.func.min(batch_range.c.start_offset).label("offset"),
    )
    .join(batch_range, batch_range.c.batch_id == batch.c.batch_id)
    .where(batch.c.bus == sa.bindparam("of_bus"), batch.c.kind == word("normal"))
    .group_by(batch.c.runner, batch_range.c.topic_name, batch_range.c.broker_name, batch_range.c.partition_id)
)


class _OldRangesError(Exception):
    """Ranges do not begin at the committed offsets of their group."""


class Batches(Aggregate):
    """Batches and their ranges of offsets."""

    def plan(self, batch: Batch, ranges: Sequence[Range], in_force: str | None = None) -> bool:
        """Add a batch with its ranges, and return whether it was added.

        A normal batch is not added if its runner has another uncommitted normal batch, or if its ranges do not begin at
        the runner's offsets, because another batch was committed after the ranges were chosen.
        If `in_force` is set, the batch is added only while this rule set is in force, because a newer one may have
        moved a rule to another runner.
        """
        try:
            with self._writing() as connection:
                if in_force is not None and connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount != 1:
                    return False
                planned = connection.execute(PLAN_BATCH, vars(batch)).rowcount == 1
                if planned and ranges:
                    connection.execute(INSERT_RANGES, [range_row(batch.batch_id, r) for r in ranges])
                    if batch.kind == "normal":  # a replay takes committed events and moves no offset
                        _refuse_old_ranges(connection, batch.runner, ranges)
                return planned
        except _OldRangesError:
            return False

    def unfinished(self, runner: str) -> Batch | None:
        """Return the uncommitted normal batch of a runner that follows no other one, or None; there is at most one."""
        with self._reading() as connection:
            return unfinished_of(connection, runner)

    def get(self, batch_id: str) -> Batch:
        """Return a batch. Raises NotFoundError if there is no such batch."""
        row = self._first(BATCH, {"of_batch": batch_id})
        if row is None:
            raise NotFoundError(f"There is no batch {batch_id} in this ledger.")
        return to_batch(row)

    def find(
        self,
        limit: int | None = 50,
        runner: str | None = None,
        state: BatchState | None = None,
        before: tuple[datetime, str] | None = None,
    ) -> list[Batch]:
        """Return at most `limit` batches (all if None), newest first; only those planned before `before` if set."""
        at, name = before or (None, "")
        query = select_batches(limit, runner, state, older=before is not None)
        values = {} if before is None else {"before_at": at, "before_batch": name}
        return [to_batch(row) for row in self._rows(query, values)]

    def uncommitted(self) -> list[Batch]:
        """Return the uncommitted batches, oldest first."""
        return [to_batch(row) for row in self._rows(OPEN_BATCHES)]

    def ids_starting_with(self, beginning: str, limit: int) -> list[str]:
        """Return at most `limit` batch ids that start with the string `beginning`, newest batch first."""
        with self._reading() as connection:
            return list(connection.execute(select_ids(beginning, limit)).scalars())

    def recent_moves(self, runner: str, *, limit: int) -> list[Move]:
        """Return how far the last `limit` committed normal batches of a runner moved each partition, newest first."""
        return [
            Move(to_partition(row), row.end_offset - row.start_offset, row.planned_at, row.committed_at, row.is_full)
            for row in self._rows(MOVES, {"of_runner": runner, "most": limit})
        ]

    def list_planned_between(self, since: datetime, until: datetime) -> list[Batch]:
        """Return the batches planned from `since` (included) to `until` (excluded), oldest first."""
        return [to_batch(row) for row in self._rows(BATCHES_BETWEEN, {"since": since, "until": until})]

    def list_at_work(self, since: datetime, until: datetime) -> list[Batch]:
        """Return the batches planned before `until` and not committed before `since`, oldest first."""
        return [to_batch(row) for row in self._rows(BATCHES_AT_WORK, {"since": since, "until": until})]

    def latest(self) -> Batch | None:
        """Return the most recently planned batch; None in an empty ledger."""
        return next(iter(self.find(limit=1)), None)

    def newest_retry(self) -> str | None:
        """Return the id of the most recently planned retry batch; None if there is none."""
        with self._reading() as connection:
            return connection.execute(NEWEST_RETRY).scalar()

    def overdue(
        self, now: datetime, kinds: Collection[BatchKind], runner: str | None = None, *, grace_seconds: float = 20.0
    ) -> list[Batch]:
        """Return uncommitted batches of these kinds whose deadline passed more than `grace_seconds` before `now`.

        The grace is the time for a push that began just before the deadline. A batch that is not routed yet has no
        deadline and is never overdue. The longest overdue batch comes first.
        """
        before = {"now": now - timedelta(seconds=grace_seconds)}
        return [to_batch(row) for row in self._rows(select_overdue(kinds, runner), before)]

    def move(self, batch_id: str, expected: BatchState, to: BatchState) -> bool:
        """Move a batch from the expected state to another; return False if it is not in the expected state."""
        change = {"of_batch": batch_id, "expected": expected, "to": to}
        return self._change(MOVE_BATCH, change) == 1

    def ranges(self, batch_id: str) -> list[Range]:
        """Return the offset ranges of a batch, in order of their partitions."""
        with self._reading() as connection:
            return ranges_of(connection, batch_id)

    def first_offsets(self, bus: str) -> dict[Partition, dict[str, int]]:
        """Return, by partition, each runner's lowest offset on a bus: its current one or the start of a batch.

        The cost grows with the number of batches of the bus.
        """
        found: dict[Partition, dict[str, int]] = defaultdict(dict)
        with self._reading() as connection:
            for each in offsets_of(connection):
                if each.bus == bus:
                    found[each.partition][each.group] = each.offset
            for row in connection.execute(FIRST_OFFSETS, {"of_bus": bus}):
                partition = to_partition(row)
                found[partition][row.runner] = min(row.offset, found[partition].get(row.runner, row.offset))
        return dict(found)


def to_batch(row: sa.Row[Any]) -> Batch:
    """Return the record of a row of table `batch`."""
    return Batch(**row._mapping)


def unfinished_of(connection: sa.Connection, runner: str) -> Batch | None:
    """Return the uncommitted normal batch of a runner that follows no other one, or None."""
    row = connection.execute(UNFINISHED_BATCH, {"of_runner": runner}).one_or_none()
    return to_batch(row) if row is not None else None


def to_range(row: sa.Row[Any]) -> Range:
    """Return the record of a row of table `batch_range`."""
    return Range(to_partition(row), row.start_offset, row.end_offset)


def ranges_of(connection: sa.Connection, batch_id: str) -> list[Range]:
    """Return the offset ranges of a batch, in order of their partitions."""
    return [to_range(row) for row in connection.execute(RANGES, {"of_batch": batch_id})]


def is_in_state(connection: sa.Connection, batch_id: str, state: BatchState) -> bool:
    """Return whether a batch is in a state, and lock it in that state until the transaction ends."""
    return connection.execute(BATCH_STATE, {"of_batch": batch_id}).scalar() == state


def _refuse_old_ranges(connection: sa.Connection, group: str, ranges: Sequence[Range]) -> None:
    # The offsets are read after the batch was added. No other batch is planned while it exists, so they do not move.
    # A partition without an offset is accepted, because the commit reports the missing offset.
    rows = connection.execute(select_offsets(group))
    standing = {to_partition(row): row.offset for row in rows}
    if any(standing.get(each.partition, each.start) != each.start for each in ranges):
        raise _OldRangesError


def range_row(batch_id: str, taken: Range) -> dict[str, object]:
    """Return the row of a batch's range."""
    return {
        "batch_id": batch_id,
        "topic_name": taken.partition.topic,
        "broker_name": taken.partition.broker,
        "partition_id": taken.partition.partition_id,
        "start_offset": taken.start,
        "end_offset": taken.end,
    }
