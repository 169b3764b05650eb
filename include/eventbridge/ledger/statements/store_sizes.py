"""Statements about how much the store holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Update, bindparam, delete, func, select, update

from eventbridge.ledger.statements.inserts import insert_or_add, insert_or_set, insert_or_skip
from eventbridge.ledger.tables import batch_size, store_size
from eventbridge.model.store_size import Area

#: Notes what a batch left, unless that was noted.
NOTE_BATCH_SIZE = insert_or_skip(batch_size)

#: Adds to what a runner and bus have in an area.
ADD_SIZE = insert_or_add(store_size, ["size"])

#: All sums.
SIZES = select(
    store_size.c.runner, store_size.c.bus, store_size.c.area, store_size.c.size, store_size.c.counted_at
).order_by(store_size.c.runner, store_size.c.bus, store_size.c.area)

#: Sets what is counted with no batch, and when.
SET_OTHER = insert_or_set(store_size)

#: Forgets what a batch left.
DROP_BATCH_SIZE = delete(batch_size).where(batch_size.c.batch_id == bindparam("of_batch"))


def _of_batch(area: Area) -> Any:
    size = select(batch_size.c[area]).where(batch_size.c.batch_id == bindparam("of_batch")).scalar_subquery()
    return func.coalesce(size, 0)


@cache
def take_from_sum(area: Area) -> Update:
    """Return the statement that takes what a batch left in an area from the sum."""
    where = [
        store_size.c.runner == bindparam("of_runner"),
        store_size.c.bus == bindparam("of_bus"),
        store_size.c.area == area,
    ]
    return update(store_size).where(*where).values(size=store_size.c.size - _of_batch(area))


@cache
def take_from_batch(area: Area) -> Update:
    """Return the statement after which a batch has nothing left in an area: taken twice, it is taken once."""
    return update(batch_size).where(batch_size.c.batch_id == bindparam("of_batch")).values({area: 0})
