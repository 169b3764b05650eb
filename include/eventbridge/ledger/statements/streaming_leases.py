"""Statements about streaming tasks, and about open batches, whose ranges grow as a streaming task delivers."""

from __future__ import annotations

from sqlalchemy import Text, bindparam, case, delete, exists, false, null, or_, select, true, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.partitions import of_partition
from eventbridge.ledger.tables import batch, batch_file, batch_range, streaming_lease

_NOW = bindparam("now", type_=UtcTime)
_RUNNER = streaming_lease.c.runner == bindparam("of_runner")
_MINE = streaming_lease.c.holder == bindparam("by")
_UNTIL = bindparam("to", type_=UtcTime)
#: A new holder of a lease has no standby yet; one that renews its lease keeps its standby.
_NOBODY = {
    streaming_lease.c.wants_next: false(),
    streaming_lease.c.next_holder: null(),
    streaming_lease.c.next_until: null(),
}
_NEXT = {column: case((_MINE, column), else_=nothing) for column, nothing in _NOBODY.items()}

#: The first streaming lease of a runner.
FIRST_STREAMING_LEASE = insert_or_skip(streaming_lease)

#: Acquires an expired streaming lease, or extends the holder's.
ACQUIRE_STREAMING_LEASE = (
    update(streaming_lease)
    .where(_RUNNER, _MINE | (streaming_lease.c.until <= _NOW))
    .values({streaming_lease.c.holder: bindparam("by"), streaming_lease.c.until: _UNTIL, **_NEXT})
)

#: Ends the holder's lease.
RELEASE_STREAMING_LEASE = update(streaming_lease).where(_RUNNER, _MINE).values(until=_NOW)

#: Records the batch that the holder has opened.
NOTE_OPEN_BATCH = update(streaming_lease).where(_RUNNER, _MINE).values(batch_id=bindparam("of_batch"))

#: Records that the batch after the recorded one continues, independent of the holder of the lease.
NOTE_FOLLOWING = (
    update(streaming_lease)
    .where(_RUNNER, streaming_lease.c.batch_id == bindparam("before"))
    .values(batch_id=bindparam("of_batch"))
)

#: The batch that was opened last.
LAST_OPEN_BATCH = select(streaming_lease.c.batch_id).where(_RUNNER)

#: Keeps the holder's lease until the transaction ends, if it has not expired.
HOLD_STREAMING_LEASE = (
    update(streaming_lease).where(_RUNNER, _MINE, streaming_lease.c.until > _NOW).values(holder=bindparam("by"))
)

#: Requests a standby for the holder's lease.
REQUEST_STANDBY = update(streaming_lease).where(_RUNNER, _MINE).values(wants_next=true())

#: Registers, or keeps, the standby of a lease of another, unless there is another standby.
REGISTER_STANDBY = (
    update(streaming_lease)
    .where(
        _RUNNER,
        streaming_lease.c.until > _NOW,
        streaming_lease.c.holder != bindparam("by"),
        or_(
            streaming_lease.c.next_holder.is_(None),
            streaming_lease.c.next_holder == bindparam("by"),
            streaming_lease.c.next_until <= _NOW,
        ),
    )
    .values(next_holder=bindparam("by"), next_until=_UNTIL)
)

#: Gives the holder's lease, with the batch that it leaves, to the standby.
HAND_OVER_LEASE = (
    update(streaming_lease)
    .where(
        _RUNNER,
        _MINE,
        streaming_lease.c.until > _NOW,
        streaming_lease.c.next_holder == bindparam("standby"),
        streaming_lease.c.next_until > _NOW,
    )
    .values(
        {
            streaming_lease.c.holder: bindparam("standby"),
            streaming_lease.c.until: _UNTIL,
            streaming_lease.c.batch_id: bindparam("left"),
            **_NOBODY,
        }
    )
)

#: The unexpired streaming lease of a runner.
STREAMING_LEASE = select(streaming_lease).where(_RUNNER, streaming_lease.c.until > _NOW)

#: Moves the end of a range forward or leaves it; never back.
MOVE_END = (
    update(batch_range)
    .where(
        batch_range.c.batch_id == bindparam("of_batch"),
        of_partition(batch_range),
        batch_range.c.end_offset <= bindparam("to"),
    )
    .values(end_offset=bindparam("to"))
)

_OF_BATCH = bindparam("of_batch", type_=Text)

#: Whether a batch has taken any event, or has a file.
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
