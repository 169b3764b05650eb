"""Statements about the slots of pools."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import pool_applied

#: The slots that rule files set, and those seen, by pool.
APPLIED_SLOTS = select(pool_applied).order_by(pool_applied.c.pool)

#: Adds a pool that no rule file had set before.
NOTE_SLOTS = insert_or_skip(pool_applied)

#: Records the slots that a rule file set.
CHANGE_SLOTS = (
    update(pool_applied)
    .where(pool_applied.c.pool == bindparam("of_pool"), pool_applied.c.slots != bindparam("to"))
    .values(slots=bindparam("to"), applied_at=bindparam("now"))
)

#: Records the slots seen in a pool.
SEE_SLOTS = (
    update(pool_applied)
    .where(pool_applied.c.pool == bindparam("of_pool"), pool_applied.c.seen_slots != bindparam("seen"))
    .values(seen_slots=bindparam("seen"), seen_at=bindparam("now"))
)
