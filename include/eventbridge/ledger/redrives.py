"""Stores redrives in the ledger: requests to redeliver dead letters, and which batch took which dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import INSERT_BATCH
from eventbridge.ledger.chunks import insert_chunks
from eventbridge.ledger.database import Aggregate, LostRaceError
from eventbridge.ledger.definitions import JsonText, UtcTime, insert_or_skip, metadata, one_of
from eventbridge.ledger.files import record_file
from eventbridge.ledger.revision import TAKE_TURN
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk
from eventbridge.model.redelivery import RECORDED, Redrive, Redriven, RedriveState

#: Requests to redeliver dead letters; `run` names the Airflow run or the command that made the request.
redrive = sa.Table(
    "redrive",
    metadata,
    sa.Column("redrive_id", sa.Text, primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("selection", JsonText, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("retransform", sa.Boolean, nullable=False),
    sa.Column("again", sa.Boolean, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("next_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.UniqueConstraint("run"),
    one_of("state", RedriveState),
)

#: The rows of a dead letter file that a batch took; `sequence` counts the batches that took rows of the file, from 0.
#: If two batches take rows of a file at the same time, the second finds its sequence number used and takes nothing.
redriven = sa.Table(
    "redriven",
    metadata,
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("redrive_id", sa.Text, sa.ForeignKey("redrive.redrive_id"), nullable=False),
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("rows", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("file", "sequence"),
)
sa.Index("ix_redriven_batch_id", redriven.c.batch_id)

_REDRIVE = redrive.c.redrive_id == sa.bindparam("of_redrive")
_RUNNING = redrive.c.state == "running"

#: Adds a redrive, unless its run already has one.
BEGIN_REDRIVE = insert_or_skip(redrive)

#: The redrive of a run.
REDRIVE_OF_RUN = sa.select(redrive).where(redrive.c.run == sa.bindparam("of_run"))

#: One redrive.
REDRIVE = sa.select(redrive).where(_REDRIVE)

#: All redrives, newest first.
REDRIVES = sa.select(redrive).order_by(redrive.c.started_at.desc(), redrive.c.redrive_id)

#: The redrives that a server without Airflow recorded and that have not ended, oldest first.
RECORDED_REDRIVES = (
    sa.select(redrive)
    .where(_RUNNING, redrive.c.run.startswith(RECORDED, autoescape=True))
    .order_by(redrive.c.started_at, redrive.c.redrive_id)
)

#: Sets when the next batch of a running redrive may be planned; changes nothing once it has ended.
DEFER_REDRIVE = sa.update(redrive).where(_REDRIVE, _RUNNING).values(next_at=sa.bindparam("at", type_=UtcTime))

#: Ends a running redrive.
END_REDRIVE = (
    sa.update(redrive)
    .where(_REDRIVE, _RUNNING)
    .values(state=sa.bindparam("to"), ended_at=sa.bindparam("now", type_=UtcTime))
)

#: The rows taken from all files.
REDRIVEN = sa.select(redriven).order_by(redriven.c.file, redriven.c.sequence)

#: The rows that a batch took.
REDRIVEN_BY = REDRIVEN.where(redriven.c.batch_id == sa.bindparam("of_batch"))

#: The rows taken from one file.
REDRIVEN_OF = REDRIVEN.where(redriven.c.file == sa.bindparam("of_file"))


class Redrives(Aggregate):
    """Requests to redeliver dead letters, and the rows that batches took for them."""

    def begin(self, redrive: Redrive) -> Redrive:
        """Add a redrive and return it; if its run already has one, return that one."""
        with self._writing() as connection:
            connection.execute(TAKE_TURN)  # so that `Retention.mark_kept` does not miss the redrive
            connection.execute(BEGIN_REDRIVE, vars(redrive) | {"selection": dict(redrive.selection)})
            return _to_redrive(connection.execute(REDRIVE_OF_RUN, {"of_run": redrive.run}).one())

    def get(self, redrive_id: str) -> Redrive:
        """Return a redrive. Raises NotFoundError if there is no such redrive."""
        row = self._first(REDRIVE, {"of_redrive": redrive_id})
        if row is None:
            raise NotFoundError(f"There is no redrive {redrive_id} in this ledger.")
        return _to_redrive(row)

    def all(self) -> list[Redrive]:
        """Return all redrives, newest first."""
        return [_to_redrive(row) for row in self._rows(REDRIVES)]

    def recorded(self) -> list[Redrive]:
        """Return the redrives that a server without Airflow recorded and that have not ended, oldest first."""
        return [_to_redrive(row) for row in self._rows(RECORDED_REDRIVES)]

    def defer(self, redrive_id: str, until: datetime) -> None:
        """Set the time before which the next batch of a redrive is not planned."""
        self._change(DEFER_REDRIVE, {"of_redrive": redrive_id, "at": until})

    def end(self, redrive_id: str, state: RedriveState) -> bool:
        """Move a running redrive to `done` or `cancelled`; return False if it has already ended."""
        change = {"of_redrive": redrive_id, "to": state, "now": self._now()}
        return self._change(END_REDRIVE, change) == 1

    def take(
        self, batch: Batch, file: BatchFile, chunks: Sequence[Chunk], taken: Sequence[Redriven], next_at: datetime
    ) -> bool:
        """Add a batch with its file and chunks, and record the dead letters that it takes; return whether it was added.

        Returns False, and changes nothing, if the redrive is no longer running, or if another batch already used one of
        the sequence numbers. All rows of `taken` belong to one redrive; its next batch is not planned before `next_at`.
        """
        try:
            with self._writing() as connection:
                self._take(connection, batch, file, chunks, taken, next_at)
        except LostRaceError:
            return False
        return True

    def list_taken(self) -> dict[str, list[Redriven]]:
        """Return all rows that were taken so far, by dead letter file, in order of sequence."""
        found: dict[str, list[Redriven]] = {}
        with self._reading() as connection:
            for row in connection.execute(REDRIVEN):
                found.setdefault(row.file, []).append(Redriven(**row._mapping))
        return found

    def list_taken_from(self, file: str) -> list[Redriven]:
        """Return all rows that were taken so far from a dead letter file, in order of sequence."""
        return [Redriven(**row._mapping) for row in self._rows(REDRIVEN_OF, {"of_file": file})]

    def list_taken_by(self, batch_id: str) -> list[Redriven]:
        """Return the dead letters that a batch took."""
        return [Redriven(**row._mapping) for row in self._rows(REDRIVEN_BY, {"of_batch": batch_id})]

    def _take(
        self,
        connection: sa.Connection,
        batch: Batch,
        file: BatchFile,
        chunks: Sequence[Chunk],
        taken: Sequence[Redriven],
        next_at: datetime,
    ) -> None:
        change = {"of_redrive": taken[0].redrive_id, "at": next_at}
        if connection.execute(DEFER_REDRIVE, change).rowcount == 0:
            raise LostRaceError
        connection.execute(INSERT_BATCH, vars(batch))
        record_file(connection, file)
        insert_chunks(connection, chunks)
        if connection.execute(insert_or_skip(redriven), [vars(each) for each in taken]).rowcount != len(taken):
            raise LostRaceError


def _to_redrive(row: sa.Row[Any]) -> Redrive:
    return Redrive(**row._mapping)
