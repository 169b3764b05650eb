"""Statements about the chunks of a batch and their claims."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, bindparam, case, func, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert
from eventbridge.ledger.tables import NORMAL_UNCOMMITTED, UNCOMMITTED, batch, delivery_chunk

_CHUNK = (delivery_chunk.c.batch_id == bindparam("of_batch")) & (delivery_chunk.c.chunk_id == bindparam("of_chunk"))
_CLAIM = delivery_chunk.c.claim == bindparam("of_claim")
_NOW = bindparam("now", type_=UtcTime)

#: Adds chunks.
INSERT_CHUNKS = insert(delivery_chunk)

#: The chunks of a batch, in order.
CHUNKS = (
    select(delivery_chunk).where(delivery_chunk.c.batch_id == bindparam("of_batch")).order_by(delivery_chunk.c.chunk_id)
)

#: The pieces in the chunks of a batch that are handed out.
CHUNK_PIECES = select(delivery_chunk.c.chunk_id, delivery_chunk.c.pieces).where(
    delivery_chunk.c.batch_id == bindparam("of_batch"), delivery_chunk.c.handed_out
)

#: The totals of the chunks of a batch that are handed out, by pool.
CHUNK_TOTALS = (
    select(
        delivery_chunk.c.pool,
        func.count().label("chunks"),
        func.sum(delivery_chunk.c.rows).label("rows"),
        func.sum(delivery_chunk.c.size).label("size"),
    )
    .where(delivery_chunk.c.batch_id == bindparam("of_batch"), delivery_chunk.c.handed_out)
    .group_by(delivery_chunk.c.pool)
    .order_by(delivery_chunk.c.pool)
)

#: The pieces in the chunks of a batch that are neither handed out nor on hold.
WITHHELD_PIECES = select(delivery_chunk.c.pool, delivery_chunk.c.pieces).where(
    delivery_chunk.c.batch_id == bindparam("of_batch"), ~delivery_chunk.c.handed_out, delivery_chunk.c.held == ""
)

#: One chunk.
CHUNK = select(delivery_chunk).where(_CHUNK)

#: Pool and weight of the handed-out chunks of a runner's uncommitted normal batch, for Airflow's scheduler.
PLACES_OF_RUNNER = (
    select(delivery_chunk.c.map_index, delivery_chunk.c.pool, delivery_chunk.c.weight)
    .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
    .where(NORMAL_UNCOMMITTED, batch.c.runner == bindparam("of_runner"), delivery_chunk.c.map_index.is_not(None))
)

#: Whether a chunk is still under a claim; locked until the transaction ends.
CHUNK_CLAIMED = select(delivery_chunk.c.claim).where(_CHUNK, _CLAIM).with_for_update(read=True)

_UNDER_WAY = delivery_chunk.c.state == "started"
_LIVE = _UNDER_WAY & (delivery_chunk.c.claimed_until > _NOW)

#: The unexpired claims of a batch.
LIVE_CLAIMS = (
    select(
        delivery_chunk.c.chunk_id,
        delivery_chunk.c.claim,
        delivery_chunk.c.worker,
        delivery_chunk.c.claimed_until.label("until"),
    )
    .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
    .where(delivery_chunk.c.batch_id == bindparam("of_batch"), batch.c.state == "routed", _LIVE)
    .order_by(delivery_chunk.c.chunk_id)
)

#: Whether a push works on a batch, whatever the state of the batch.
ANY_LIVE = select(delivery_chunk.c.chunk_id).where(delivery_chunk.c.batch_id == bindparam("of_batch"), _LIVE).limit(1)

#: Extends a claim while it is valid.
RENEW_CLAIM = (
    update(delivery_chunk).where(_CHUNK, _CLAIM, _UNDER_WAY).values(claimed_until=bindparam("until", type_=UtcTime))
)

#: Ends a claim that was not renewed since it was read.
RELEASE_CLAIM = (
    update(delivery_chunk)
    .where(_CHUNK, _CLAIM, delivery_chunk.c.claimed_until == bindparam("until", type_=UtcTime))
    .values(claimed_until=None)
)

#: Claims a chunk that is not completed and that no live push has; this invalidates an earlier claim.
CLAIM_CHUNK = (
    update(delivery_chunk)
    .where(_CHUNK, delivery_chunk.c.state != "completed", ~func.coalesce(_LIVE, False))
    .values(
        claim=delivery_chunk.c.claim + 1,
        claimed_until=bindparam("until", type_=UtcTime),
        state="started",
        worker=bindparam("by"),
        started_at=_NOW,
        ended_at=None,
        error="",
    )
)

#: Ends a chunk, only under the claim that worked on it.
END_CHUNK = (
    update(delivery_chunk)
    .where(_CHUNK, _CLAIM)
    .values(
        state=bindparam("to"),
        succeeded=bindparam("delivered"),
        failed=bindparam("undelivered"),
        error=bindparam("because", type_=delivery_chunk.c.error.type),
        ended_at=_NOW,
    )
)

#: Adds to the CPU time of a chunk.
SPEND_CPU = update(delivery_chunk).where(_CHUNK).values(cpu=delivery_chunk.c.cpu + bindparam("more"))

#: Ends the claims of all chunks of a batch; chunks that have not ended get no result.
RAISE_CLAIMS = (
    update(delivery_chunk)
    .where(delivery_chunk.c.batch_id == bindparam("of_batch"))
    .values(
        claim=delivery_chunk.c.claim + 1,
        state=case((_UNDER_WAY, "error"), else_=delivery_chunk.c.state),
        ended_at=case((_UNDER_WAY, _NOW), else_=delivery_chunk.c.ended_at),
        error=case((_UNDER_WAY, bindparam("lost")), else_=delivery_chunk.c.error),
    )
)


def chunk_counts(runner: str | None) -> Select[Any]:
    """Return the query for the number of chunks of uncommitted batches in each state."""
    found = (
        select(delivery_chunk.c.state, func.count().label("chunks"))
        .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
        .where(UNCOMMITTED)
        .group_by(delivery_chunk.c.state)
    )
    return found if runner is None else found.where(batch.c.runner == runner)
