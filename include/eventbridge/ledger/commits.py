"""Commits in the ledger: the one transaction that completes a batch, and the commit of its offsets to the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.errors import NotFoundError, ReconciliationError
from eventbridge.ledger.batches import prove_settled_by, to_batch
from eventbridge.ledger.database import Database
from eventbridge.ledger.offsets import move_offset
from eventbridge.ledger.quality import hold_by_expectation
from eventbridge.ledger.statements import batches as statements
from eventbridge.ledger.statements import deferred_matches as deferred_match_statements
from eventbridge.ledger.statements import pending as pending_statements
from eventbridge.ledger.statements import streaming_leases as streaming_lease_statements
from eventbridge.ledger.stats import add_stats
from eventbridge.model.batch import Batch, Range
from eventbridge.model.stat import Stat


class Commits(Database):
    """The part of the ledger about committed batches."""

    def commit_batch(
        self,
        batch_id: str,
        runner: str,
        ranges: Sequence[Range],
        now: datetime,
        settlement: str,
        failed: Mapping[str, str] | None = None,
        stats: Sequence[Stat] = (),
    ) -> bool:
        """Commit a settled batch: move the runner's offsets past its ranges, close the rows that it took, and release
        the batch that follows it.

        `settlement`: the key of the first settlement with which it was reconciled. `failed`: the failed expectations
        (`expect`) by rule; these rules are put on hold. `stats` are added to those of the minute.
        All changes are one transaction. Returns False if the batch is already committed.
        Raises ReconciliationError, and changes nothing, if the batch is not settling or a committed offset
        differs from the start of its range; SettledAgainError if it has another settlement now; NotFoundError.
        """
        with self._writing() as connection:
            change = {"of_batch": batch_id, "now": now}
            if connection.execute(statements.PUBLISH_COMMITTED, change).rowcount == 0:
                return _refuse(connection, batch_id)
            prove_settled_by(connection, batch_id, settlement)
            for moved in ranges:
                move_offset(connection, runner, moved, now)
            connection.execute(pending_statements.CLOSE_PENDING, {"of_batch": batch_id})
            connection.execute(deferred_match_statements.CLOSE_DEFERRED_MATCHES, {"of_batch": batch_id})
            hold_by_expectation(connection, failed or {}, batch_id, now)
            add_stats(connection, stats, now)
            _release_following(connection, runner, batch_id)
            return True

    def prove_settled_by(self, batch_id: str, settlement: str) -> None:
        """Raise SettledAgainError if the first settlement of a batch is no longer the one with this key."""
        with self._reading() as connection:
            prove_settled_by(connection, batch_id, settlement)

    def mark_bus_committed(self, batch_id: str) -> None:
        """Record that a committed batch's offsets were committed to its bus; no effect on a repeat or an open batch."""
        with self._writing() as connection:
            connection.execute(statements.MARK_BUS_COMMITTED, {"of_batch": batch_id, "now": self.now()})

    def bus_commits_outstanding(self, runner: str) -> list[Batch]:
        """Return the runner's committed normal batches whose offsets were not committed to its bus, oldest first."""
        with self._reading() as connection:
            return [
                to_batch(row) for row in connection.execute(statements.BUS_COMMITS_OUTSTANDING, {"of_runner": runner})
            ]


def _release_following(connection: Connection, runner: str, batch_id: str) -> None:
    """Make the batch that follows a batch the current one of its runner, and the open batch of its streaming task."""
    following = connection.execute(statements.RELEASE_FOLLOWING, {"of_batch": batch_id}).scalar()
    if following is not None:
        of = {"of_runner": runner, "before": batch_id, "of_batch": following}
        connection.execute(streaming_lease_statements.NOTE_FOLLOWING, of)


def _refuse(connection: Connection, batch_id: str) -> bool:
    state = connection.execute(statements.BATCH_STATE, {"of_batch": batch_id}).scalar()
    if state is None:
        raise NotFoundError(f"There is no batch {batch_id} in this ledger.")
    if state != "committed":
        raise ReconciliationError(f"Batch {batch_id} cannot be committed: it is {state}, and must be settled first.")
    return False
