"""Streaming tasks in the ledger: which process delivers a runner's events as they arrive, and the records of its open
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.ledger.batches import range_row, ranges_of, record
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import streaming_leases as statements
from eventbridge.ledger.statements.rules import HOLD_RULES
from eventbridge.model.batch import Batch, BatchFile, Range
from eventbridge.model.partition import Partition
from eventbridge.model.runner import StreamingLease


class _LostError(Exception):
    """A batch is not open, or has read further than its segment says."""


class StreamingLeases(Database):
    """The part of the ledger about streaming leases and open batches."""

    def acquire_streaming_lease(self, runner: str, holder: str, until: datetime) -> bool:
        """Acquire a runner's streaming lease until a time, or extend it; return False while another holder has it.

        A holder's name is never reused, so a holder that lost the lease cannot mistake another's lease for its own.
        """
        of = {"of_runner": runner, "by": holder, "to": until, "now": self.now()}
        with self._writing() as connection:
            if connection.execute(statements.ACQUIRE_STREAMING_LEASE, of).rowcount == 1:
                return True
            first = {"runner": runner, "holder": holder, "until": until}
            return connection.execute(statements.FIRST_STREAMING_LEASE, first).rowcount == 1

    def release_streaming_lease(self, runner: str, holder: str) -> bool:
        """End the holder's lease now; return False if another holder has it."""
        of = {"of_runner": runner, "by": holder, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_STREAMING_LEASE, of).rowcount == 1

    def note_open_batch(self, runner: str, holder: str, batch_id: str) -> None:
        """Record the batch that a streaming task has opened, if `holder` still has the lease."""
        with self._writing() as connection:
            connection.execute(statements.NOTE_OPEN_BATCH, {"of_runner": runner, "by": holder, "of_batch": batch_id})

    def last_open_batch(self, runner: str) -> str | None:
        """Return the most recently opened batch, of any holder of the streaming lease."""
        with self._reading() as connection:
            batch_id: str | None = connection.execute(statements.LAST_OPEN_BATCH, {"of_runner": runner}).scalar()
        return batch_id

    def request_standby(self, runner: str, holder: str) -> None:
        """Record that the holder's lease ends soon; the watcher then starts a run for a standby."""
        with self._writing() as connection:
            connection.execute(statements.REQUEST_STANDBY, {"of_runner": runner, "by": holder})

    def register_standby(self, runner: str, name: str, until: datetime) -> bool:
        """Register as the standby of another's lease, or extend that; return False if there is no lease or another
        standby.
        """
        of = {"of_runner": runner, "by": name, "to": until, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.REGISTER_STANDBY, of).rowcount == 1

    def hand_over_lease(self, runner: str, holder: str, standby: str, until: datetime, batch_id: str | None) -> bool:
        """Give the holder's lease to the standby, with the batch that is still to be closed.

        Returns False, and changes nothing, if the holder no longer has it or `standby` is no longer the standby.
        """
        of = {"of_runner": runner, "by": holder, "standby": standby, "to": until, "left": batch_id, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.HAND_OVER_LEASE, of).rowcount == 1

    def streaming_lease(self, runner: str) -> StreamingLease | None:
        """Return the current streaming lease of a runner; None if there is none."""
        with self._reading() as connection:
            row = connection.execute(statements.STREAMING_LEASE, {"of_runner": runner, "now": self.now()}).one_or_none()
        return None if row is None else StreamingLease(**row._mapping)

    def open_following(self, batch: Batch, ends: Mapping[Partition, int], holder: str, in_force: str) -> bool:
        """Add an open batch that follows another of its runner and takes the events from `ends` on.

        The former batch's ranges end there from now on, if it is open. Only the holder of the streaming lease has the
        new batch until the former is committed. Returns False, and changes nothing, if `in_force` is no longer the
        rule set in force, if `holder` does not have the streaming lease, if the former is committed or ends elsewhere,
        or if another batch follows it.
        """
        try:
            with self._writing() as connection:
                self._open_following(connection, batch, ends, holder, in_force)
        except _LostError:
            return False
        return True

    def _open_following(
        self, connection: Connection, batch: Batch, ends: Mapping[Partition, int], holder: str, in_force: str
    ) -> None:
        if connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount != 1:
            raise _LostError
        former = batch.follows or ""
        state = connection.execute(batch_statements.BATCH_STATE, {"of_batch": former}).scalar()
        if state in (None, "committed"):
            raise _LostError
        of = {"of_runner": batch.runner, "by": holder, "now": self.now()}
        if connection.execute(statements.HOLD_STREAMING_LEASE, of).rowcount != 1:
            raise _LostError
        if state == "open":
            _record(connection, former, ends, None)
        if {each.partition: each.end for each in ranges_of(connection, former)} != dict(ends):
            raise _LostError
        if connection.execute(batch_statements.PLAN_BATCH, vars(batch)).rowcount != 1:
            raise _LostError
        rows = [range_row(batch.batch_id, Range(partition, end, end)) for partition, end in sorted(ends.items())]
        connection.execute(batch_statements.INSERT_RANGES, rows)

    def record_open(self, batch_id: str, ends: Mapping[Partition, int], segment: BatchFile | None) -> bool:
        """Record a segment of an open batch (None: no response came) with the offsets up to which it has read.

        Both are recorded or neither. Returns False, and changes nothing, if the batch is no longer open, if it has read
        further than `ends` or has no range of such a partition, or if the segment's key is taken: the caller has lost
        the batch and must stop.
        """
        try:
            with self._writing() as connection:
                _record(connection, batch_id, ends, segment)
        except _LostError:
            return False
        return True

    def drop_open(self, batch_id: str) -> bool:
        """Delete an open batch that received no events.

        Returns False, and changes nothing, if it is no longer open, has taken any event, or has a file.
        """
        of = {"of_batch": batch_id}
        try:
            with self._writing() as connection:
                if connection.execute(statements.HAS_SOMETHING, of).scalar():
                    return False
                connection.execute(statements.DROP_RANGES, of)
                if connection.execute(statements.DROP_OPEN, of).rowcount != 1:
                    raise _LostError
        except _LostError:
            return False
        return True


def _record(connection: Connection, batch_id: str, ends: Mapping[Partition, int], segment: BatchFile | None) -> None:
    if connection.execute(batch_statements.BATCH_STATE, {"of_batch": batch_id}).scalar() != "open":
        raise _LostError
    for partition, end in sorted(ends.items()):
        change = {
            "of_batch": batch_id,
            "of_topic": partition.topic,
            "of_broker": partition.broker,
            "of_partition": partition.partition_id,
            "to": end,
        }
        if connection.execute(statements.MOVE_END, change).rowcount != 1:
            raise _LostError
    if segment is not None and not record(connection, segment):
        raise _LostError
