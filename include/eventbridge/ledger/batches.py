"""Batches in the ledger: planning a batch, moving it from state to state, recording the files of its stages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.errors import NotFoundError, SettledAgainError
from eventbridge.ledger.database import Database
from eventbridge.ledger.descriptions import Descriptions
from eventbridge.ledger.statements import batches as statements
from eventbridge.ledger.statements import offsets as offset_statements
from eventbridge.ledger.statements.moment import OPEN_BATCHES
from eventbridge.ledger.statements.rules import HOLD_RULES
from eventbridge.model.batch import Batch, BatchFile, BatchKind, BatchState, FileKind, FilePlace, Range
from eventbridge.model.partition import Move, Partition
from eventbridge.model.storage import STEPS, Kept


def to_batch(row: Row[Any]) -> Batch:
    """Return the record of a row of table `batch`."""
    return Batch(**row._mapping)


def unfinished_of(connection: Connection, runner: str) -> Batch | None:
    """Return a runner's normal batch that is not committed."""
    row = connection.execute(statements.UNFINISHED_BATCH, {"of_runner": runner}).one_or_none()
    return to_batch(row) if row is not None else None


def ranges_of(connection: Connection, batch_id: str) -> list[Range]:
    """Return the offset ranges of a batch, in order of their partitions."""
    return [
        Range(_partition(row), row.start_offset, row.end_offset)
        for row in connection.execute(statements.RANGES, {"of_batch": batch_id})
    ]


def in_state(connection: Connection, batch_id: str, state: BatchState) -> bool:
    """Return whether a batch is in a state; keep it there until the transaction ends."""
    return connection.execute(statements.BATCH_STATE, {"of_batch": batch_id}).scalar() == state


def prove_settled_by(connection: Connection, batch_id: str, settlement: str) -> None:
    """Raise SettledAgainError if the first settlement of a batch is not the one with this key.

    Results derived from a settlement count only while the batch still has it. The caller has locked the batch's row, so
    the settlement stays until the transaction ends.
    """
    first = connection.execute(statements.SETTLEMENTS, {"of_batch": batch_id}).scalar()
    if first not in (None, settlement):
        raise SettledAgainError(
            f"Batch {batch_id} was settled again by a repair while this was at work on it: what follows from its old "
            "settlement counts for nothing. Run this again."
        )


class _OldRangesError(Exception):
    """Ranges do not begin at the committed offsets of their group."""


class Batches(Database):
    """The part of the ledger about batches."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._descriptions = Descriptions()

    def plan_batch(self, batch: Batch, ranges: Sequence[Range], in_force: str | None = None) -> bool:
        """Add a batch with its ranges, and return whether it was added.

        A normal batch is added only if its runner has no other uncommitted normal batch and has committed none since
        the ranges were made; otherwise the ranges do not begin at the runner's offsets.
        `in_force`: the batch is added only while this rule set is in force, because a newer one may have moved a rule
        to another runner.
        """
        try:
            with self._writing() as connection:
                if in_force is not None and connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount != 1:
                    return False
                planned = connection.execute(statements.PLAN_BATCH, vars(batch)).rowcount == 1
                if planned and ranges:
                    connection.execute(statements.INSERT_RANGES, [range_row(batch.batch_id, r) for r in ranges])
                    if batch.kind == "normal":  # a replay takes committed events and moves no offset
                        _refuse_old(connection, batch.runner, ranges)
                return planned
        except _OldRangesError:
            return False

    def unfinished_batch(self, runner: str) -> Batch | None:
        """Return the runner's uncommitted normal batch; there is at most one."""
        with self._reading() as connection:
            return unfinished_of(connection, runner)

    def batch(self, batch_id: str) -> Batch:
        """Return a batch; raises NotFoundError."""
        with self._reading() as connection:
            row = connection.execute(statements.BATCH, {"of_batch": batch_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"There is no batch {batch_id} in this ledger.")
        return to_batch(row)

    def batches(
        self,
        limit: int | None = 50,
        runner: str | None = None,
        state: BatchState | None = None,
        before: tuple[datetime, str] | None = None,
    ) -> list[Batch]:
        """Return at most `limit` batches (None = all), newest first; `before`: only those planned before this time."""
        at, name = before or (None, "")
        query = statements.batches(limit, runner, state, older=before is not None)
        values = {} if before is None else {"before_at": at, "before_batch": name}
        with self._reading() as connection:
            return [to_batch(row) for row in connection.execute(query, values)]

    def open_batches(self) -> list[Batch]:
        """Return the uncommitted batches, oldest first."""
        with self._reading() as connection:
            return [to_batch(row) for row in connection.execute(OPEN_BATCHES)]

    def batches_named(self, beginning: str, most: int) -> list[str]:
        """Return at most `most` ids of batches that begin with a text, newest first."""
        with self._reading() as connection:
            return list(connection.execute(statements.batches_named(beginning, most)).scalars())

    def newest_files(
        self,
        kind: FileKind,
        what: Kept,
        limit: int,
        *,
        bus: str | None = None,
        batch_kind: BatchKind | None = None,
        behind: FilePlace | None = None,
    ) -> list[FilePlace]:
        """Return a bounded number of files of a kind from batches that still have `what`, newest batch first.

        `bus`, `batch_kind`: only from batches of these; None: from all. `behind`: only files that follow that one.
        """
        kept = STEPS[: STEPS.index(what) + 1]
        query = statements.newest_files(kind, kept, limit, bus=bus, batch_kind=batch_kind, older=behind is not None)
        values = {}
        if behind is not None:
            values = {"before_at": behind.planned_at, "before_batch": behind.batch_id, "before_key": behind.key}
        with self._reading() as connection:
            return [FilePlace(**row._mapping) for row in connection.execute(query, values)]

    def moves(self, runner: str, *, most: int) -> list[Move]:
        """Return how far the last `most` committed normal batches of a runner moved each partition, newest first."""
        with self._reading() as connection:
            return [
                Move(_partition(row), row.end_offset - row.start_offset, row.planned_at, row.committed_at, row.is_full)
                for row in connection.execute(statements.MOVES, {"of_runner": runner, "most": most})
            ]

    def batches_between(self, since: datetime, until: datetime) -> list[Batch]:
        """Return the batches planned from `since` (included) to `until` (excluded), oldest first."""
        with self._reading() as connection:
            rows = connection.execute(statements.BATCHES_BETWEEN, {"since": since, "until": until})
            return [to_batch(row) for row in rows]

    def latest_batch(self) -> Batch | None:
        """Return the most recently planned batch; None in an empty ledger."""
        return next(iter(self.batches(limit=1)), None)

    def newest_retry(self) -> str | None:
        """Return the id of the most recently planned retry batch; None if there is none."""
        with self._reading() as connection:
            return connection.execute(statements.NEWEST_RETRY).scalar()

    def stale_taken_batches(
        self,
        now: datetime,
        kinds: Collection[BatchKind],
        runner: str | None = None,
        *,
        grace_seconds: float = 20.0,
    ) -> list[Batch]:
        """Return uncommitted batches of these kinds whose deadline passed more than `grace_seconds` before `now`.

        The grace is the budget of a push that began just in time (default 20 s). A batch that is not routed yet has no
        deadline and is never stale. The longest overdue batch comes first.
        """
        before = {"now": now - timedelta(seconds=grace_seconds)}
        with self._reading() as connection:
            return [to_batch(row) for row in connection.execute(statements.stale_batches(kinds, runner), before)]

    def move_batch(self, batch_id: str, expected: BatchState, to: BatchState) -> bool:
        """Move a batch from the expected state to another; return False if it is not in the expected state."""
        change = {"of_batch": batch_id, "expected": expected, "to": to}
        with self._writing() as connection:
            return connection.execute(statements.MOVE_BATCH, change).rowcount == 1

    def ranges(self, batch_id: str) -> list[Range]:
        """Return the offset ranges of a batch, in order of their partitions."""
        with self._reading() as connection:
            return ranges_of(connection, batch_id)

    def record_file(self, file: BatchFile, while_state: BatchState, settlement: str | None = None) -> bool:
        """Record a file that a stage has finished, only while the batch is in a state; return whether it was recorded.

        Returns False if the batch is in another state or another file has this key; the caller's file is then garbage.
        `settlement` is the key of the first settlement from which the file is derived; raises SettledAgainError if the
        batch has another first settlement now.
        """
        with self._writing() as connection:
            if not in_state(connection, file.batch_id, while_state):
                return False
            if settlement is not None:
                prove_settled_by(connection, file.batch_id, settlement)
            return record(connection, file)

    def files(self, batch_id: str, kind: FileKind) -> list[BatchFile]:
        """Return the recorded files of a kind, in order of their keys."""
        with self._reading() as connection:
            rows = connection.execute(statements.FILES, {"of_batch": batch_id, "of_kind": kind}).all()
        return self._descriptions.decoded(batch_id, rows)


def _partition(row: Row[Any]) -> Partition:
    return Partition(row.topic_name, row.broker_name, row.partition_id)


def record(connection: Connection, file: BatchFile) -> bool:
    """Record a file; return False if its key is taken."""
    return connection.execute(statements.RECORD_FILE, vars(file)).rowcount == 1


def _refuse_old(connection: Connection, group: str, ranges: Sequence[Range]) -> None:
    # Read after the batch was added: no other batch is planned while it exists, so no offset of the group moves.
    # A partition without an offset is not out of date; the commit reports the missing offset.
    rows = connection.execute(offset_statements.offsets(group))
    standing = {_partition(row): row.offset for row in rows}
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
