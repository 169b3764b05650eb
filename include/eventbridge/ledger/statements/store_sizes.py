"""Statements about the size of the store."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Update, bindparam, delete, func, select, update

from eventbridge.ledger.statements.inserts import insert_or_add, insert_or_set, insert_or_skip
from eventbridge.ledger.tables import batch_size, store_size
from eventbridge.model.storage import Area

#: Records the bytes of a batch, unless they are recorded.
NOTE_BATCH_SIZE = insert_or_skip(batch_size)

#: Adds to the bytes of a runner and bus in an area.
ADD_SIZE = insert_or_add(store_size, ["size"])

#: All sums.
SIZES = select(
    store_size.c.runner, store_size.c.bus, store_size.c.area, store_size.c.size, store_size.c.counted_at
).order_by(store_size.c.runner, store_size.c.bus, store_size.c.area)

#: Sets the bytes that are counted with no batch, and when.
SET_OTHER = insert_or_set(store_size)

#: Deletes the bytes of a batch.
DROP_BATCH_SIZE = delete(batch_size).where(batch_size.c.batch_id == bindparam("of_batch"))


def _of_batch(area: Area) -> Any:
    size = select(batch_size.c[area]).where(batch_size.c.batch_id == bindparam("of_batch")).scalar_subquery()
    return func.coalesce(size, 0)


@cache
def take_from_sum(area: Area) -> Update:
    """Return the statement that subtracts the bytes of a batch in an area from the sum."""
    where = [
        store_size.c.runner == bindparam("of_runner"),
        store_size.c.bus == bindparam("of_bus"),
        store_size.c.area == area,
    ]
    return update(store_size).where(*where).values(size=store_size.c.size - _of_batch(area))


@cache
def take_from_batch(area: Area) -> Update:
    """Return the statement that sets the bytes of a batch in an area to 0, so that they are subtracted only once."""
    return update(batch_size).where(batch_size.c.batch_id == bindparam("of_batch")).values({area: 0})
