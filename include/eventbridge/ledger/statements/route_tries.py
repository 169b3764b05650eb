"""Statements about how often route has tried a slice."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import route_try

_SLICE = (route_try.c.batch_id == bindparam("of_batch")) & (route_try.c.slice_id == bindparam("of_slice"))

#: Begins to count a slice's tries, unless they are counted already.
COUNT_SLICE = insert_or_skip(route_try)

#: Adds to the tries of a slice, or takes one back.
ADD_TRY = update(route_try).where(_SLICE).values(tries=route_try.c.tries + bindparam("more"))

#: The tries of a slice.
TRIES_OF_SLICE = select(route_try.c.tries).where(_SLICE)

#: The tries of all slices of a batch.
TRIES = select(route_try.c.slice_id, route_try.c.tries).where(route_try.c.batch_id == bindparam("of_batch"))
