"""Records in the ledger the size of the store, and why ingestion is stopped."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    Message,
    UtcTime,
    insert_or_add,
    insert_or_set,
    insert_or_skip,
    metadata,
    one_of,
)
from eventbridge.ledger.operational_events import queue_events
from eventbridge.model.batch import Batch
from eventbridge.model.storage import AREAS, STEPS, Area, BatchSize, IngestionStop, StopCause, StoreCount, StoredBytes
from eventbridge.policy.operational_event import ingestion_resumed_event, ingestion_stopped_event

#: The bytes of each runner, bus and area. `counted_at` is set only for the area `other`: when all files of the store
#: were last measured.
store_size = sa.Table(
    "store_size",
    metadata,
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("area", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("counted_at", UtcTime),
    sa.PrimaryKeyConstraint("runner", "bus", "area"),
    one_of("area", Area),
)

#: The bytes of each batch that are part of the sums in `store_size`; they are subtracted when the records are removed.
batch_size = sa.Table(
    "batch_size",
    metadata,
    sa.Column("batch_id", sa.Text, primary_key=True),
    sa.Column("deliveries", sa.BigInteger, nullable=False),
    sa.Column("archive", sa.BigInteger, nullable=False),
    sa.Column("dead_letters", sa.BigInteger, nullable=False),
)

ingestion_stop = sa.Table(
    "ingestion_stop",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("reason", Message, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("cause", sa.Text, nullable=False, server_default="disk"),
    sa.CheckConstraint("singleton = 1", name="singleton"),
)

#: Adds to the sum of a runner, bus and area.
ADD_SIZE = insert_or_add(store_size, ["size"])

#: All sums.
SIZES = sa.select(
    store_size.c.runner, store_size.c.bus, store_size.c.area, store_size.c.size, store_size.c.counted_at
).order_by(store_size.c.runner, store_size.c.bus, store_size.c.area)

#: Deletes the record of a batch's bytes.
DROP_BATCH_SIZE = sa.delete(batch_size).where(batch_size.c.batch_id == sa.bindparam("of_batch"))


def _batch_size(area: Area) -> Any:
    size = sa.select(batch_size.c[area]).where(batch_size.c.batch_id == sa.bindparam("of_batch")).scalar_subquery()
    return sa.func.coalesce(size, 0)


@cache
def update_sum(area: Area) -> sa.Update:
    """Return the statement that subtracts the bytes of a batch in an area from the sum."""
    where = [
        store_size.c.runner == sa.bindparam("of_runner"),
        store_size.c.bus == sa.bindparam("of_bus"),
        store_size.c.area == area,
    ]
    return sa.update(store_size).where(*where).values(size=store_size.c.size - _batch_size(area))


@cache
def update_batch_size(area: Area) -> sa.Update:
    """Return the statement that sets the bytes of a batch in an area to 0, so that they are subtracted only once."""
    return sa.update(batch_size).where(batch_size.c.batch_id == sa.bindparam("of_batch")).values({area: 0})


#: The reasons why ingestion is stopped; no row if it is not.
INGESTION_STOP = sa.select(ingestion_stop.c.reason, ingestion_stop.c.since, ingestion_stop.c.cause)


class StoreSizes(Aggregate):
    """The size of the store."""

    def add(self, batch: Batch, size: BatchSize) -> bool:
        """Count the bytes of a batch in the store; if they were counted before, keep the count and return False."""
        with self._writing() as connection:
            row = {"batch_id": batch.batch_id, **vars(size)}
            if connection.execute(insert_or_skip(batch_size), row).rowcount == 0:
                return False
            of = {"runner": batch.runner, "bus": batch.bus, "counted_at": None}
            rows = [of | {"area": area, "size": count} for area, count in sorted(vars(size).items())]
            connection.execute(ADD_SIZE, rows)
            return True

    def total(self) -> StoreCount:
        """Return the counted size of the store."""
        rows = self._rows(SIZES)
        counted_at = next((row.counted_at for row in rows if row.area == "other"), None)
        return StoreCount(tuple(StoredBytes(row.runner, row.bus, row.area, row.size) for row in rows), counted_at)

    def record_measured(self, other: int, now: datetime) -> None:
        """Record that all files were measured at `now`, and `other`: their bytes beyond those counted for batches."""
        row = {"runner": "", "bus": "", "area": "other", "size": other, "counted_at": now}
        self._change(insert_or_set(store_size), row)


class Ingestion(Aggregate):
    """Whether runners take new events, and why not."""

    def current_stop(self) -> IngestionStop | None:
        """Return why ingestion is stopped; None if it is not."""
        row = self._first(INGESTION_STOP)
        return None if row is None else IngestionStop(**row._mapping)

    def stop(self, reason: str, cause: StopCause) -> bool:
        """Stop ingestion and queue the event that reports it; return False if it was already stopped."""
        stop = IngestionStop(reason, self._now(), cause)
        with self._writing() as connection:
            if connection.execute(insert_or_skip(ingestion_stop), {"singleton": 1, **vars(stop)}).rowcount == 0:
                return False
            queue_events(connection, [ingestion_stopped_event(stop)])
            return True

    def resume(self) -> bool:
        """Resume ingestion and queue the event that reports it; return False if it was not stopped."""
        now = self._now()
        with self._writing() as connection:
            row = connection.execute(INGESTION_STOP).one_or_none()
            if row is None or connection.execute(sa.delete(ingestion_stop)).rowcount == 0:
                return False
            queue_events(connection, [ingestion_resumed_event(IngestionStop(**row._mapping), now)])
            return True


def take_size(connection: sa.Connection, batch: Batch) -> None:
    """Subtract the bytes of the records that a batch no longer keeps from the sums. Repeated calls have no effect."""
    of = {"of_batch": batch.batch_id}
    lost = STEPS[STEPS.index(batch.remaining) : STEPS.index(batch.kept)]
    for area in sorted(AREAS[what] for what in lost if what in AREAS):
        connection.execute(update_sum(area), of | {"of_runner": batch.runner, "of_bus": batch.bus})
        connection.execute(update_batch_size(area), of)
    if batch.kept == "nothing":
        connection.execute(DROP_BATCH_SIZE, of)
