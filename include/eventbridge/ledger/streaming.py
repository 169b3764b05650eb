"""Records streaming tasks in the ledger: which process delivers a runner's events, and its open batch.

The ranges of an open batch grow as the process delivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from eventbridge.ledger.batches import BATCH_STATE, INSERT_RANGES, PLAN_BATCH, batch, batch_range, range_row, ranges_of
from eventbridge.ledger.database import Aggregate, LostRaceError
from eventbridge.ledger.definitions import NOW, UtcTime, insert_or_skip, metadata, naming, partition_condition
from eventbridge.ledger.files import batch_file, record_file
from eventbridge.ledger.rules import HOLD_RULES
from eventbridge.model.batch import Batch, BatchFile, Range
from eventbridge.model.partition import Partition
from eventbridge.model.runner import StreamingLease

#: The holder of a runner's streaming lease, and when the lease ends; a holder's name is never reused. `batch_id` is the
#: batch that was opened last. `wants_next` is true if the holder ends soon and requests a standby. `next_holder` is the
#: standby, registered until `next_until`.
streaming_lease = sa.Table(
    "streaming_lease",
    metadata,
    sa.Column("runner", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("until", UtcTime, nullable=False),
    sa.Column("batch_id", sa.Text),
    sa.Column("wants_next", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("next_holder", sa.Text),
    sa.Column("next_until", UtcTime),
)

_RUNNER = streaming_lease.c.runner == sa.bindparam("of_runner")
_MINE = streaming_lease.c.holder == sa.bindparam("by")
_UNTIL = sa.bindparam("to", type_=UtcTime)

#: A new holder of a lease has no standby yet; a holder that renews its lease keeps its standby.
_NO_STANDBY = {
    streaming_lease.c.wants_next: sa.false(),
    streaming_lease.c.next_holder: sa.null(),
    streaming_lease.c.next_until: sa.null(),
}

_NEXT = {column: sa.case((_MINE, column), else_=nothing) for column, nothing in _NO_STANDBY.items()}

#: Acquires an expired streaming lease, or extends a lease that the caller holds.
ACQUIRE_STREAMING_LEASE = (
    sa.update(streaming_lease)
    .where(_RUNNER, _MINE | (streaming_lease.c.until <= NOW))
    .values({streaming_lease.c.holder: sa.bindparam("by"), streaming_lease.c.until: _UNTIL, **_NEXT})
)

#: Ends the holder's lease.
RELEASE_STREAMING_LEASE = sa.update(streaming_lease).where(_RUNNER, _MINE).values(until=NOW)

#: Records the batch that the holder has opened.
NOTE_OPEN_BATCH = sa.update(streaming_lease).where(_RUNNER, _MINE).values(batch_id=sa.bindparam("of_batch"))

#: Replaces the recorded open batch by the one that follows it, regardless of which process holds the lease.
NOTE_FOLLOWING = (
    sa.update(streaming_lease)
    .where(_RUNNER, streaming_lease.c.batch_id == sa.bindparam("before"))
    .values(batch_id=sa.bindparam("of_batch"))
)

#: Locks the holder's lease until the transaction ends, if it has not expired.
HOLD_STREAMING_LEASE = (
    sa.update(streaming_lease).where(_RUNNER, _MINE, streaming_lease.c.until > NOW).values(holder=sa.bindparam("by"))
)

#: Requests a standby for the holder's lease.
REQUEST_STANDBY = sa.update(streaming_lease).where(_RUNNER, _MINE).values(wants_next=sa.true())

#: Registers a standby for another process's lease, or extends the registration, unless there is another standby.
REGISTER_STANDBY = (
    sa.update(streaming_lease)
    .where(
        _RUNNER,
        streaming_lease.c.until > NOW,
        streaming_lease.c.holder != sa.bindparam("by"),
        sa.or_(
            streaming_lease.c.next_holder.is_(None),
            streaming_lease.c.next_holder == sa.bindparam("by"),
            streaming_lease.c.next_until <= NOW,
        ),
    )
    .values(next_holder=sa.bindparam("by"), next_until=_UNTIL)
)

#: Transfers the holder's lease, with its open batch, to the standby.
HAND_OVER_LEASE = (
    sa.update(streaming_lease)
    .where(
        _RUNNER,
        _MINE,
        streaming_lease.c.until > NOW,
        streaming_lease.c.next_holder == sa.bindparam("standby"),
        streaming_lease.c.next_until > NOW,
    )
    .values(
        {
            streaming_lease.c.holder: sa.bindparam("standby"),
            streaming_lease.c.until: _UNTIL,
            streaming_lease.c.batch_id: sa.bindparam("open_batch"),
            **_NO_STANDBY,
        }
    )
)

#: The unexpired streaming lease of a runner.
STREAMING_LEASE = sa.select(streaming_lease).where(_RUNNER, streaming_lease.c.until > NOW)

#: Moves the end of a range forward or keeps it, but never moves it back.
MOVE_END = (
    sa.update(batch_range)
    .where(
        batch_range.c.batch_id == sa.bindparam("of_batch"),
        partition_condition(batch_range),
        batch_range.c.end_offset <= sa.bindparam("to"),
    )
    .values(end_offset=sa.bindparam("to"))
)

_OF_BATCH = sa.bindparam("of_batch", type_=sa.Text)

#: Whether a batch has taken any events, or has a file.
HAS_SOMETHING = sa.select(
    sa.or_(
        sa.exists().where(batch_range.c.batch_id == _OF_BATCH, batch_range.c.end_offset > batch_range.c.start_offset),
        sa.exists().where(batch_file.c.batch_id == _OF_BATCH),
    )
)

#: Drops the ranges of a batch.
DROP_RANGES = sa.delete(batch_range).where(batch_range.c.batch_id == _OF_BATCH)

#: Drops a batch that is open.
DROP_OPEN = sa.delete(batch).where(batch.c.batch_id == _OF_BATCH, batch.c.state == "open")


class Streaming(Aggregate):
    """Streaming leases and open batches."""

    def acquire_lease(self, runner: str, holder: str, until: datetime) -> bool:
        """Acquire a runner's streaming lease until the given time, or extend it; return False while another holder has
        it.

        A holder's name is never reused, so a holder that lost the lease cannot mistake another's lease for its own.
        """
        of = {"of_runner": runner, "by": holder, "to": until, "now": self._now()}
        with self._writing() as connection:
            if connection.execute(ACQUIRE_STREAMING_LEASE, of).rowcount == 1:
                return True
            first = {"runner": runner, "holder": holder, "until": until}
            return connection.execute(insert_or_skip(streaming_lease), first).rowcount == 1

    def release_lease(self, runner: str, holder: str) -> bool:
        """End the holder's lease now; return False if another holder has it."""
        of = {"of_runner": runner, "by": holder, "now": self._now()}
        return self._change(RELEASE_STREAMING_LEASE, of) == 1

    def record_open_batch(self, runner: str, holder: str, batch_id: str) -> None:
        """Record the batch that a streaming task has opened, if `holder` still has the lease."""
        self._change(NOTE_OPEN_BATCH, {"of_runner": runner, "by": holder, "of_batch": batch_id})

    def last_open_batch(self, runner: str) -> str | None:
        """Return the id of the runner's most recently opened batch, whichever process opened it; None if none did."""
        row = self._first(sa.select(streaming_lease.c.batch_id).where(_RUNNER), {"of_runner": runner})
        return None if row is None else row.batch_id

    def request_standby(self, runner: str, holder: str) -> None:
        """Request a standby because the holder's lease ends soon; the watcher then starts a run for it."""
        self._change(REQUEST_STANDBY, {"of_runner": runner, "by": holder})

    def register_standby(self, runner: str, name: str, until: datetime) -> bool:
        """Register a standby for another process's lease, or extend its registration.

        Returns False if the lease has ended or is the standby's own, or if another standby is registered.
        """
        of = {"of_runner": runner, "by": name, "to": until, "now": self._now()}
        return self._change(REGISTER_STANDBY, of) == 1

    def hand_over_lease(self, runner: str, holder: str, standby: str, until: datetime, batch_id: str | None) -> bool:
        """Transfer the holder's lease to the standby, with the id of its open batch.

        Returns False, and changes nothing, if the holder has lost the lease or `standby` is no longer registered.
        """
        change = {"of_runner": runner, "by": holder, "standby": standby, "to": until, "open_batch": batch_id}
        return self._change(HAND_OVER_LEASE, change | {"now": self._now()}) == 1

    def lease(self, runner: str) -> StreamingLease | None:
        """Return the current streaming lease of a runner, or None."""
        row = self._first(STREAMING_LEASE, {"of_runner": runner, "now": self._now()})
        return None if row is None else StreamingLease(**row._mapping)

    def open_following(self, batch: Batch, ends: Mapping[Partition, int], holder: str, in_force: str) -> bool:
        """Add an open batch that follows the runner's previous batch and takes the events from `ends` onwards.

        If the previous batch is open, its ranges now end at `ends`. Until it is committed, only the holder of the
        streaming lease works on the new batch. Returns False, and changes nothing, if `in_force` is no longer the rule
        set in force, if `holder` does not have the streaming lease, if the previous batch is committed or ends
        elsewhere, or if another batch already follows it.
        """
        try:
            with self._writing() as connection:
                self._open_following(connection, batch, ends, holder, in_force)
        except LostRaceError:
            return False
        return True

    def _open_following(
        self, connection: sa.Connection, batch: Batch, ends: Mapping[Partition, int], holder: str, in_force: str
    ) -> None:
        if connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount != 1:
            raise LostRaceError
        former = batch.follows or ""
        state = connection.execute(BATCH_STATE, {"of_batch": former}).scalar()
        if state in (None, "committed"):
            raise LostRaceError
        of = {"of_runner": batch.runner, "by": holder, "now": self._now()}
        if connection.execute(HOLD_STREAMING_LEASE, of).rowcount != 1:
            raise LostRaceError
        if state == "open":
            _record_ends(connection, former, ends, None)
        if {each.partition: each.end for each in ranges_of(connection, former)} != dict(ends):
            raise LostRaceError
        if connection.execute(PLAN_BATCH, vars(batch)).rowcount != 1:
            raise LostRaceError
        rows = [range_row(batch.batch_id, Range(partition, end, end)) for partition, end in sorted(ends.items())]
        connection.execute(INSERT_RANGES, rows)

    def record(self, batch_id: str, ends: Mapping[Partition, int], segment: BatchFile | None) -> bool:
        """Record the offsets up to which an open batch has read, and a segment (None if there are no new responses).

        It records both or neither. Returns False, and changes nothing, if the batch is no longer open, if it has
        already read further than `ends`, if it has no range for one of the partitions, or if the segment's key is
        taken. The caller has then lost the batch and must stop.
        """
        try:
            with self._writing() as connection:
                _record_ends(connection, batch_id, ends, segment)
        except LostRaceError:
            return False
        return True

    def drop(self, batch_id: str) -> bool:
        """Delete an open batch that received no events.

        Returns False, and changes nothing, if it is no longer open, has taken any events, or has a file.
        """
        of = {"of_batch": batch_id}
        try:
            with self._writing() as connection:
                if connection.execute(HAS_SOMETHING, of).scalar():
                    return False
                connection.execute(DROP_RANGES, of)
                if connection.execute(DROP_OPEN, of).rowcount != 1:
                    raise LostRaceError
        except LostRaceError:
            return False
        return True


def _record_ends(
    connection: sa.Connection, batch_id: str, ends: Mapping[Partition, int], segment: BatchFile | None
) -> None:
    if connection.execute(BATCH_STATE, {"of_batch": batch_id}).scalar() != "open":
        raise LostRaceError
    for partition, end in sorted(ends.items()):
        if connection.execute(MOVE_END, {"of_batch": batch_id, **naming(partition), "to": end}).rowcount != 1:
            raise LostRaceError
    if segment is not None and not record_file(connection, segment):
        raise LostRaceError
