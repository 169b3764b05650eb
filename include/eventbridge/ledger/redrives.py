"""Redrives in the ledger: requests to deliver dead letters again, and which batch took which dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import record
from eventbridge.ledger.chunks import insert_chunks
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import offsets as offset_statements
from eventbridge.ledger.statements import redrives as statements
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk
from eventbridge.model.redelivery import Redrive, Redriven, RedriveState


class _Lost(Exception):
    """Another process was first; the transaction is rolled back."""


class Redrives(Database):
    """The part of the ledger about dead letters that are delivered again."""

    def begin_redrive(self, redrive: Redrive) -> Redrive:
        """Add a redrive and return it; if its run already has one, return that one."""
        with self._writing() as connection:
            connection.execute(offset_statements.TAKE_TURN)  # see `mark_kept`
            connection.execute(statements.BEGIN_REDRIVE, vars(redrive) | {"selection": dict(redrive.selection)})
            return _to_redrive(connection.execute(statements.REDRIVE_OF_RUN, {"of_run": redrive.run}).one())

    def redrive(self, redrive_id: str) -> Redrive:
        """Return a redrive; raises NotFoundError."""
        with self._reading() as connection:
            row = connection.execute(statements.REDRIVE, {"of_redrive": redrive_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"There is no redrive {redrive_id} in this ledger.")
        return _to_redrive(row)

    def redrives(self) -> list[Redrive]:
        """Return all redrives, newest first."""
        with self._reading() as connection:
            return [_to_redrive(row) for row in connection.execute(statements.REDRIVES)]

    def recorded_redrives(self) -> list[Redrive]:
        """Return the redrives that a server without Airflow recorded and that have not ended, oldest first."""
        with self._reading() as connection:
            return [_to_redrive(row) for row in connection.execute(statements.RECORDED_REDRIVES)]

    def defer_redrive(self, redrive_id: str, until: datetime) -> None:
        """Set the time before which the next batch of a redrive is not planned."""
        with self._writing() as connection:
            connection.execute(statements.GO_ON, {"of_redrive": redrive_id, "at": until})

    def end_redrive(self, redrive_id: str, state: RedriveState) -> bool:
        """Move a running redrive to `done` or `cancelled`; return False if it has ended."""
        change = {"of_redrive": redrive_id, "to": state, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.END_REDRIVE, change).rowcount == 1

    def plan_redriven(
        self,
        batch: Batch,
        file: BatchFile,
        chunks: Sequence[Chunk],
        taken: Sequence[Redriven],
        next_at: datetime,
    ) -> bool:
        """Add a batch with its file and chunks and record the dead letters it takes: all, or nothing and return False.

        Returns False if the redrive is no longer running, or another batch has had one of the turns. `taken` belongs
        to one redrive, which plans its next batch not before `next_at`.
        """
        try:
            with self._writing() as connection:
                self._take(connection, batch, file, chunks, taken, next_at)
        except _Lost:
            return False
        return True

    def redriven(self) -> dict[str, list[Redriven]]:
        """Return all rows that were ever taken, by dead letter file, in order of turns."""
        found: dict[str, list[Redriven]] = {}
        with self._reading() as connection:
            for row in connection.execute(statements.REDRIVEN):
                found.setdefault(row.file, []).append(Redriven(**row._mapping))
        return found

    def redriven_of(self, file: str) -> list[Redriven]:
        """Return all rows that were ever taken from a dead letter file, in order of turns."""
        with self._reading() as connection:
            rows = connection.execute(statements.REDRIVEN_OF, {"of_file": file})
            return [Redriven(**row._mapping) for row in rows]

    def redriven_by(self, batch_id: str) -> list[Redriven]:
        """Return the dead letters that a batch took."""
        with self._reading() as connection:
            rows = connection.execute(statements.REDRIVEN_BY, {"of_batch": batch_id})
            return [Redriven(**row._mapping) for row in rows]

    def _take(
        self,
        connection: Connection,
        batch: Batch,
        file: BatchFile,
        chunks: Sequence[Chunk],
        taken: Sequence[Redriven],
        next_at: datetime,
    ) -> None:
        change = {"of_redrive": taken[0].redrive_id, "at": next_at}
        if connection.execute(statements.GO_ON, change).rowcount == 0:
            raise _Lost
        connection.execute(batch_statements.INSERT_BATCH, vars(batch))
        record(connection, file)
        insert_chunks(connection, chunks)
        if connection.execute(statements.TAKE_DEAD_LETTERS, [vars(each) for each in taken]).rowcount != len(taken):
            raise _Lost


def _to_redrive(row: Row[Any]) -> Redrive:
    return Redrive(**row._mapping)
