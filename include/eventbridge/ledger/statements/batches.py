"""Statements about batches, their ranges and their files."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, bindparam, delete, func, or_, select, tuple_, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import word
from eventbridge.ledger.statements.inserts import insert, insert_or_skip
from eventbridge.ledger.tables import (
    BUS_COMMIT_OUTSTANDING,
    NORMAL_UNCOMMITTED,
    RETRY,
    UNCOMMITTED,
    batch,
    batch_file,
    batch_range,
)

_BATCH = batch.c.batch_id == bindparam("of_batch")
_NOW = bindparam("now", type_=UtcTime)
#: Kinds of files that nearly every batch has: the newest files are those of the newest batches.
_OF_MOST_BATCHES = frozenset(("buffer", "delivery", "outcome"))

#: One batch.
BATCH = select(batch).where(_BATCH)

#: The state of a batch, locked until the transaction ends.
BATCH_STATE = select(batch.c.state).where(_BATCH).with_for_update(read=True)

#: The batches that were planned in a period.
BATCHES_BETWEEN = (
    select(batch)
    .where(
        batch.c.planned_at >= bindparam("since", type_=UtcTime), batch.c.planned_at < bindparam("until", type_=UtcTime)
    )
    .order_by(batch.c.planned_at, batch.c.batch_id)
)

_newest_committed = (
    select(batch)
    .where(
        batch.c.runner == bindparam("of_runner"),
        batch.c.kind == word("normal"),
        batch.c.state == word("committed"),
    )
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(bindparam("most"))
    .subquery()
)

#: The moves of each partition by the newest committed batches of a runner, newest batch first.
MOVES = (
    select(batch_range, _newest_committed.c.planned_at, _newest_committed.c.committed_at, _newest_committed.c.is_full)
    .join(batch_range, batch_range.c.batch_id == _newest_committed.c.batch_id)
    .order_by(_newest_committed.c.planned_at.desc(), *batch_range.primary_key)
)

#: The one uncommitted normal batch of a runner that follows none.
UNFINISHED_BATCH = select(batch).where(batch.c.runner == bindparam("of_runner"), NORMAL_UNCOMMITTED)

#: Adds a batch, unless its runner has another uncommitted normal one.
PLAN_BATCH = insert_or_skip(batch)

#: Adds a batch.
INSERT_BATCH = insert(batch)

#: Adds the ranges of a batch.
INSERT_RANGES = insert(batch_range)

#: The ranges of a batch, in order of their partitions.
RANGES = select(batch_range).where(batch_range.c.batch_id == bindparam("of_batch")).order_by(*batch_range.primary_key)

#: The retry batch that was planned last.
NEWEST_RETRY = (
    select(batch.c.batch_id).where(RETRY).order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(1)
)

#: Moves a batch from one state to another: compare and set. One that follows stays open.
MOVE_BATCH = (
    update(batch)
    .where(_BATCH, batch.c.state == bindparam("expected"), batch.c.follows.is_(None))
    .values(state=bindparam("to"))
)

#: Publishes a batch as routed, with its deadline: compare and set.
PUBLISH_ROUTED = (
    update(batch)
    .where(_BATCH, batch.c.state == "buffered")
    .values(state="routed", deadline_at=bindparam("deadline", type_=UtcTime))
)

#: Publishes a batch as committed: compare and set.
PUBLISH_COMMITTED = (
    update(batch).where(_BATCH, batch.c.state == "settling").values(state="committed", committed_at=_NOW)
)

#: Makes the batch that follows a committed one the current batch of its runner.
RELEASE_FOLLOWING = (
    update(batch).where(batch.c.follows == bindparam("of_batch")).values(follows=None).returning(batch.c.batch_id)
)

#: Records when the offsets of a committed batch were committed to the bus; the first time counts.
MARK_BUS_COMMITTED = (
    update(batch)
    .where(_BATCH, batch.c.state == "committed", batch.c.bus_committed_at.is_(None))
    .values(bus_committed_at=_NOW)
)

#: Committed batches of a runner whose offsets were not committed to its bus, oldest first.
BUS_COMMITS_OUTSTANDING = (
    select(batch)
    .where(batch.c.runner == bindparam("of_runner"), BUS_COMMIT_OUTSTANDING)
    .order_by(batch.c.planned_at, batch.c.batch_id)
)

#: Records a file under its key, unless the key is taken.
RECORD_FILE = insert_or_skip(batch_file)

#: Deletes the record of a file; the file stays in the store.
FORGET_FILE = delete(batch_file).where(
    batch_file.c.batch_id == bindparam("of_batch"),
    batch_file.c.kind == bindparam("of_kind"),
    batch_file.c.key == bindparam("of_key"),
)

_columns = [type_coerce(column, Text).label("detail") if column.name == "detail" else column for column in batch_file.c]

#: The recorded files of a batch and kind, in order of their keys; their details as text.
FILES = (
    select(*_columns)
    .where(batch_file.c.batch_id == bindparam("of_batch"), batch_file.c.kind == bindparam("of_kind"))
    .order_by(batch_file.c.key)
)

#: The settlements of a batch, the first one first: a batch that is settled again has another first one.
SETTLEMENTS = (
    select(batch_file.c.key)
    .where(batch_file.c.batch_id == bindparam("of_batch"), batch_file.c.kind == "settlement")
    .order_by(batch_file.c.key)
)

#: Deletes the records of settlements and dead letters of a batch; the files stay in the store.
FORGET_SETTLEMENT = delete(batch_file).where(
    batch_file.c.batch_id == bindparam("of_batch"), batch_file.c.kind.in_(["settlement", "dead_letter"])
)


#: The condition for batches older than one, in the order of the newest first.
_OLDER = tuple_(batch.c.planned_at, batch.c.batch_id) < tuple_(
    bindparam("before_at", type_=UtcTime), bindparam("before_batch", type_=Text)
)


def batches_named(beginning: str, most: int) -> Select[Any]:
    """Return the query for the ids of the newest batches that begin with a text."""
    return (
        select(batch.c.batch_id)
        .where(batch.c.batch_id.startswith(beginning, autoescape=True))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
        .limit(most)
    )


def newest_files(
    kind: str, kept: Collection[str], limit: int, *, bus: str | None, batch_kind: str | None, older: bool
) -> Select[Any]:
    """Return the query for files of a kind of batches that still keep a kind of record, newest batch first.

    `bus`, `batch_kind`: only of batches of these; None: of all. `older`: only after a file.
    """
    name: ColumnElement[Any] = batch.c.batch_id
    left: ColumnElement[Any] = batch.c.kept
    if kind in _OF_MOST_BATCHES:  # no index has these: SQLite would read all batches or files, and sort them
        name, left = func.coalesce(name, ""), func.coalesce(left, "")
    found = (
        select(batch.c.planned_at, batch.c.batch_id, batch_file.c.key, batch_file.c.path)
        .select_from(batch)
        .join(batch_file, (batch_file.c.batch_id == name) & (batch_file.c.kind == word(kind)))
        .where(left.in_(sorted(kept)), batch_file.c.path.is_not(None))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc(), batch_file.c.key)
        .limit(limit)
    )
    if bus is not None:
        found = found.where(batch.c.bus == bus)
    if batch_kind is not None:
        found = found.where(batch.c.kind == batch_kind)
    same = (batch.c.batch_id == bindparam("before_batch")) & (batch_file.c.key > bindparam("before_key"))
    return found.where(or_(_OLDER, same)) if older else found


def batches(limit: int | None, runner: str | None, state: str | None, *, older: bool = False) -> Select[Any]:
    """Return the query for batches, newest first; `older`: only after one."""
    found = select(batch).order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(limit)
    if older:
        found = found.where(_OLDER)
    if runner is not None:
        found = found.where(batch.c.runner == runner)
    return found if state is None else found.where(batch.c.state == state)


def stale_batches(kinds: Collection[str], runner: str | None) -> Select[Any]:
    """Return the query for uncommitted batches whose deadline lies before `now`, the longest overdue first."""
    found = (
        select(batch)
        .where(UNCOMMITTED, batch.c.kind.in_(sorted(kinds)), batch.c.deadline_at < _NOW)
        .order_by(batch.c.deadline_at, batch.c.batch_id)
    )
    return found if runner is None else found.where(batch.c.runner == runner)
