"""Statements about the ledger at one moment that belong to no other noun."""

from __future__ import annotations

from sqlalchemy import func, select

from eventbridge.ledger.tables import UNCOMMITTED, WAITING, batch, batch_range, pending

#: Waiting deliveries of committed batches, by target and state.
PENDING_SUMS = (
    select(pending.c.rule, pending.c.target, pending.c.state, func.sum(pending.c.count).label("waiting"))
    .join(batch, batch.c.batch_id == pending.c.batch_id)
    .where(WAITING, batch.c.state == "committed")
    .group_by(pending.c.rule, pending.c.target, pending.c.state)
    .order_by(pending.c.rule, pending.c.target, pending.c.state)
)

#: Uncommitted batches, oldest first.
OPEN_BATCHES = select(batch).where(UNCOMMITTED).order_by(batch.c.planned_at, batch.c.batch_id)

#: The ranges of uncommitted batches, with their runners.
OPEN_RANGES = (
    select(batch.c.runner, batch_range).join(batch, batch.c.batch_id == batch_range.c.batch_id).where(UNCOMMITTED)
)
