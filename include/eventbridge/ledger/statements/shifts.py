"""Statements about shifts, and about batches that are open: their ranges grow with what a shift delivers."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.queues import of_queue
from eventbridge.ledger.tables import batch_range, shift

_NOW = bindparam("now", type_=UtcTime)
_RUNNER = shift.c.runner == bindparam("of_runner")
_MINE = shift.c.holder == bindparam("by")

#: The first shift of a runner.
FIRST_SHIFT = insert_or_skip(shift)

#: Takes a shift that nobody has any more, or makes one's own longer.
TAKE_SHIFT = (
    update(shift)
    .where(_RUNNER, _MINE | (shift.c.until <= _NOW))
    .values(holder=bindparam("by"), until=bindparam("to", type_=UtcTime))
)

#: Ends one's own shift.
END_SHIFT = update(shift).where(_RUNNER, _MINE).values(until=_NOW)

#: The shift of a runner that has not run out.
SHIFT = select(shift).where(_RUNNER, shift.c.until > _NOW)

#: Moves the end of a range on, or leaves it where it is; never back.
MOVE_END = (
    update(batch_range)
    .where(
        batch_range.c.batch_id == bindparam("of_batch"),
        of_queue(batch_range),
        batch_range.c.end_offset <= bindparam("to"),
    )
    .values(end_offset=bindparam("to"))
)
