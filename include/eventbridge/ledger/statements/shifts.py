"""Statements about shifts, and about batches that are open: their ranges grow with what a shift delivers."""

from __future__ import annotations

from sqlalchemy import Text, bindparam, case, delete, exists, false, null, or_, select, true, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.queues import of_queue
from eventbridge.ledger.tables import batch, batch_file, batch_range, shift

_NOW = bindparam("now", type_=UtcTime)
_RUNNER = shift.c.runner == bindparam("of_runner")
_MINE = shift.c.holder == bindparam("by")
_UNTIL = bindparam("to", type_=UtcTime)
#: Of whoever takes a shift nobody stands by yet; who makes its own longer keeps what it has.
_NOBODY = {shift.c.wants_next: false(), shift.c.next_holder: null(), shift.c.next_until: null()}
_NEXT = {column: case((_MINE, column), else_=nothing) for column, nothing in _NOBODY.items()}

#: The first shift of a runner.
FIRST_SHIFT = insert_or_skip(shift)

#: Takes a shift that nobody has any more, or makes one's own longer.
TAKE_SHIFT = (
    update(shift)
    .where(_RUNNER, _MINE | (shift.c.until <= _NOW))
    .values({shift.c.holder: bindparam("by"), shift.c.until: _UNTIL, **_NEXT})
)

#: Ends one's own shift.
END_SHIFT = update(shift).where(_RUNNER, _MINE).values(until=_NOW)

#: Notes which window one's own shift has opened.
NOTE_WINDOW = update(shift).where(_RUNNER, _MINE).values(batch_id=bindparam("of_batch"))

#: Notes that the window behind the one that was noted goes on, whoever has the shift.
NOTE_FOLLOWING = (
    update(shift).where(_RUNNER, shift.c.batch_id == bindparam("before")).values(batch_id=bindparam("of_batch"))
)

#: The window that was opened last.
LAST_WINDOW = select(shift.c.batch_id).where(_RUNNER)

#: Keeps one's own shift until the transaction ends, if it has not run out.
HOLD_SHIFT = update(shift).where(_RUNNER, _MINE, shift.c.until > _NOW).values(holder=bindparam("by"))

#: Asks for a process that stands by for one's own shift.
ASK_FOR_NEXT = update(shift).where(_RUNNER, _MINE).values(wants_next=true())

#: Stands by for a shift of another, or goes on standing by, unless somebody else does.
STAND_BY = (
    update(shift)
    .where(
        _RUNNER,
        shift.c.until > _NOW,
        shift.c.holder != bindparam("by"),
        or_(shift.c.next_holder.is_(None), shift.c.next_holder == bindparam("by"), shift.c.next_until <= _NOW),
    )
    .values(next_holder=bindparam("by"), next_until=_UNTIL)
)

#: Gives one's own shift, with the window that it leaves, to who stands by.
PASS_ON = (
    update(shift)
    .where(_RUNNER, _MINE, shift.c.until > _NOW, shift.c.next_holder == bindparam("heir"), shift.c.next_until > _NOW)
    .values({shift.c.holder: bindparam("heir"), shift.c.until: _UNTIL, shift.c.batch_id: bindparam("left"), **_NOBODY})
)

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

_OF_BATCH = bindparam("of_batch", type_=Text)

#: Whether a batch has taken something up, or has a file.
HAS_SOMETHING = select(
    or_(
        exists().where(batch_range.c.batch_id == _OF_BATCH, batch_range.c.end_offset > batch_range.c.start_offset),
        exists().where(batch_file.c.batch_id == _OF_BATCH),
    )
)

#: Drops the ranges of a batch.
DROP_RANGES = delete(batch_range).where(batch_range.c.batch_id == _OF_BATCH)

#: Drops a batch that is open.
DROP_OPEN = delete(batch).where(batch.c.batch_id == _OF_BATCH, batch.c.state == "open")
