"""The size of the store in the ledger: bytes of batches, and the measured remainder."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import store_sizes as statements
from eventbridge.model.batch import Batch
from eventbridge.model.storage import AREAS, STEPS, BatchSize, StoreCount, StoredBytes


class StoreSizes(Database):
    """The part of the ledger about the size of the store."""

    def add_batch_size(self, batch: Batch, size: BatchSize) -> bool:
        """Count the bytes of a batch in the store; return False, and keep the count, if it was counted before."""
        with self._writing() as connection:
            row = {"batch_id": batch.batch_id, **vars(size)}
            if connection.execute(statements.NOTE_BATCH_SIZE, row).rowcount == 0:
                return False
            of = {"runner": batch.runner, "bus": batch.bus, "counted_at": None}
            rows = [of | {"area": area, "size": count} for area, count in sorted(vars(size).items())]
            connection.execute(statements.ADD_SIZE, rows)
            return True

    def store_count(self) -> StoreCount:
        """Return the counted size of the store."""
        with self._reading() as connection:
            rows = connection.execute(statements.SIZES).all()
        counted_at = next((row.counted_at for row in rows if row.area == "other"), None)
        return StoreCount(tuple(StoredBytes(row.runner, row.bus, row.area, row.size) for row in rows), counted_at)

    def set_store_count(self, other: int, now: datetime) -> None:
        """Record that all files were measured now, and their bytes beyond those counted for batches."""
        row = {"runner": "", "bus": "", "area": "other", "size": other, "counted_at": now}
        with self._writing() as connection:
            connection.execute(statements.SET_OTHER, row)


def take_size(connection: Connection, batch: Batch) -> None:
    """Subtract the bytes that a batch loses when it is cleared from the sums; repeated calls subtract nothing."""
    of = {"of_batch": batch.batch_id}
    going = STEPS[STEPS.index(batch.cleared) : STEPS.index(batch.kept)]
    for area in sorted(AREAS[what] for what in going if what in AREAS):
        connection.execute(statements.take_from_sum(area), of | {"of_runner": batch.runner, "of_bus": batch.bus})
        connection.execute(statements.take_from_batch(area), of)
    if batch.kept == "nothing":
        connection.execute(statements.DROP_BATCH_SIZE, of)
