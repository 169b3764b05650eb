"""Ends batches in the ledger: begins a settlement, replaces it for a repair, and commits the batch.

The commit is the one transaction that completes a batch; the commit of its offsets to the bus follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.errors import NotFoundError, ReconciliationError
from eventbridge.ledger.batches import (
    BATCH_STATE,
    BUS_COMMITS_OUTSTANDING,
    MARK_BUS_COMMITTED,
    MOVE_BATCH,
    PUBLISH_COMMITTED,
    RELEASE_FOLLOWING,
    to_batch,
)
from eventbridge.ledger.chunks import ANY_LIVE, RAISE_CLAIMS
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.files import FORGET_FILE, FORGET_SETTLEMENT, prove_settled_by, record_file
from eventbridge.ledger.offsets import move_offset
from eventbridge.ledger.pending import CLOSE_PENDING, FORGET_PENDING, TAKEN_OF
from eventbridge.ledger.quality import hold_by_expectation
from eventbridge.ledger.routing import CLOSE_DEFERRED_MATCHES
from eventbridge.ledger.stats import add_stats
from eventbridge.ledger.streaming import NOTE_FOLLOWING
from eventbridge.model.batch import Batch, BatchFile, BatchState, Range
from eventbridge.model.chunk import PUSH_LOST
from eventbridge.model.stat import Stat


class _PushInProgressError(Exception):
    """A batch cannot be settled yet, because a push is working on one of its chunks."""


class Settlement(Aggregate):
    """The settlement and the commit of batches."""

    def begin(self, batch_id: str) -> bool:
        """Move a batch from `routed` to `settling` and end all claims of its chunks.

        From then on no segment of the batch can be recorded, so its segments are final. Returns False and changes
        nothing if the batch is not in the `routed` state, or if the claim of a push has not expired.
        """
        now = self._now()
        try:
            with self._writing() as connection:
                change = {"of_batch": batch_id, "expected": "routed", "to": "settling"}
                begun = connection.execute(MOVE_BATCH, change).rowcount == 1
                # The batch's row is locked by now. A claim locks that row first, so no push can claim a chunk here.
                if connection.execute(ANY_LIVE, {"of_batch": batch_id, "now": now}).first() is not None:
                    raise _PushInProgressError
                if begun:
                    raised = {"of_batch": batch_id, "now": now, "lost": PUSH_LOST}
                    connection.execute(RAISE_CLAIMS, raised)
                return begun
        except _PushInProgressError:
            return False

    def set_aside(
        self, batch_id: str, state: BatchState, files: Sequence[BatchFile], old: str, settlement: BatchFile | None
    ) -> bool:
        """Delete the records of `files` of a batch, and replace its first settlement, which now has the key `old`.

        The supplements, dead letters and pending rows of the old settlement are deleted with it. If `settlement` is
        None, only the records of `files` are deleted. Returns False, and changes nothing, if the batch is not in
        `state` or another batch has taken one of its pending rows. Raises SettledAgainError if the first settlement has
        a different key.
        """
        of = {"of_batch": batch_id}
        with self._writing() as connection:
            # Setting the state to itself locks the row against other transactions until this one ends.
            if connection.execute(MOVE_BATCH, of | {"expected": state, "to": state}).rowcount == 0:
                return False
            prove_settled_by(connection, batch_id, old)
            if settlement is not None:
                if connection.execute(TAKEN_OF, of).first() is not None:
                    return False
                connection.execute(FORGET_PENDING, of)
                connection.execute(FORGET_SETTLEMENT, of)
            for file in files:
                connection.execute(FORGET_FILE, of | {"of_kind": file.kind, "of_key": file.key})
            return settlement is None or record_file(connection, settlement)

    def commit(
        self,
        batch_id: str,
        runner: str,
        ranges: Sequence[Range],
        now: datetime,
        settlement: str,
        failed: Mapping[str, str] | None = None,
        stats: Sequence[Stat] = (),
    ) -> bool:
        """Commit a settled batch, and return True; return False if it is already committed.

        `settlement` is the key of the first settlement with which it was reconciled. `failed` maps rules, which are put
        on hold, to their failed expectations (`expect`). `stats` are added to the stats of the minute. All changes are
        one transaction. It moves the runner's offsets past the ranges, closes the rows that the batch took, and
        releases the batch that follows. Changes nothing and raises ReconciliationError if the batch is not settling or
        a committed offset differs from the start of its range, SettledAgainError if the batch now has a different
        settlement, and NotFoundError if it does not exist.
        """
        with self._writing() as connection:
            change = {"of_batch": batch_id, "now": now}
            if connection.execute(PUBLISH_COMMITTED, change).rowcount == 0:
                return _refuse(connection, batch_id)
            prove_settled_by(connection, batch_id, settlement)
            for moved in ranges:
                move_offset(connection, runner, moved, now)
            connection.execute(CLOSE_PENDING, {"of_batch": batch_id})
            connection.execute(CLOSE_DEFERRED_MATCHES, {"of_batch": batch_id})
            hold_by_expectation(connection, failed or {}, batch_id, now)
            add_stats(connection, stats, now)
            _release_following(connection, runner, batch_id)
            return True

    def prove_current(self, batch_id: str, settlement: str) -> None:
        """Raise SettledAgainError if the first settlement of a batch now has a different key."""
        with self._reading() as connection:
            prove_settled_by(connection, batch_id, settlement)

    def mark_bus_committed(self, batch_id: str) -> None:
        """Record that a committed batch's offsets were committed to its bus; a repeated call has no effect."""
        self._change(MARK_BUS_COMMITTED, {"of_batch": batch_id, "now": self._now()})

    def bus_commits_outstanding(self, runner: str) -> list[Batch]:
        """Return the runner's committed normal batches whose offsets are not committed to its bus yet, oldest first."""
        return [to_batch(row) for row in self._rows(BUS_COMMITS_OUTSTANDING, {"of_runner": runner})]


def _release_following(connection: Connection, runner: str, batch_id: str) -> None:
    """Make the batch that follows a committed one the current batch of its runner and of the streaming lease."""
    following = connection.execute(RELEASE_FOLLOWING, {"of_batch": batch_id}).scalar()
    if following is not None:
        of = {"of_runner": runner, "before": batch_id, "of_batch": following}
        connection.execute(NOTE_FOLLOWING, of)


def _refuse(connection: Connection, batch_id: str) -> bool:
    state = connection.execute(BATCH_STATE, {"of_batch": batch_id}).scalar()
    if state is None:
        raise NotFoundError(f"There is no batch {batch_id} in this ledger.")
    if state != "committed":
        raise ReconciliationError(f"Batch {batch_id} cannot be committed: it is {state}, and must be settled first.")
    return False
