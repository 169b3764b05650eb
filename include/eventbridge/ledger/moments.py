"""The ledger at one moment: all values that metrics need, read in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime

from eventbridge.ledger.batches import to_batch
from eventbridge.ledger.database import Database
from eventbridge.ledger.offsets import offsets_of
from eventbridge.ledger.statements import ingestion as ingestion_statements
from eventbridge.ledger.statements import moment as statements
from eventbridge.ledger.statements import targets as target_statements
from eventbridge.ledger.stats import stats_ever
from eventbridge.model.batch import Range
from eventbridge.model.partition import Partition
from eventbridge.model.rule_state import TargetStatus
from eventbridge.model.stat import Moment, PendingSum, Scope


class Moments(Database):
    """The part of the ledger that is read in one transaction."""

    def moment(self, *, of_targets: bool) -> Moment:
        """Return the ledger at one moment: its numbers are consistent, whatever changes meanwhile.

        `of_targets`: include the stats of each target.
        """
        now, host_now = self.now(), datetime.now(UTC)
        scopes: tuple[Scope, ...] = ("bus", "target") if of_targets else ("bus",)
        with self._reading() as connection:
            return Moment(
                now=now,
                host_now=host_now,
                stats=tuple(each for scope in scopes for each in stats_ever(connection, scope)),
                pending=tuple(
                    PendingSum(row.rule, row.target, row.state, int(row.waiting))
                    for row in connection.execute(statements.PENDING_SUMS)
                ),
                offsets=tuple(offsets_of(connection)),
                open_batches=tuple(map(to_batch, connection.execute(statements.OPEN_BATCHES))),
                ranges=tuple(
                    (
                        row.runner,
                        Range(
                            Partition(row.topic_name, row.broker_name, row.partition_id),
                            row.start_offset,
                            row.end_offset,
                        ),
                    )
                    for row in connection.execute(statements.OPEN_RANGES)
                ),
                targets=tuple(
                    TargetStatus(**row._mapping) for row in connection.execute(target_statements.TARGET_STATUSES)
                ),
                ingestion_stopped=connection.execute(ingestion_statements.INGESTION_STOP).first() is not None,
            )
