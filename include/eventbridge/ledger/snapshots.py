"""Reads a snapshot of the ledger, with all values that metrics need, in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select

from eventbridge.ledger.airflow import dropped_total
from eventbridge.ledger.batches import OPEN_BATCHES, UNCOMMITTED, batch, batch_range, to_batch, to_range
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.offsets import offsets_of
from eventbridge.ledger.pending import WAITING, pending
from eventbridge.ledger.stats import stats_ever
from eventbridge.ledger.store import INGESTION_STOP
from eventbridge.ledger.targets import TARGET_STATUSES
from eventbridge.model.rule_state import TargetStatus
from eventbridge.model.stat import LedgerSnapshot, PendingSum, Scope

#: Waiting deliveries of committed batches, by target and state.
PENDING_SUMS = (
    select(pending.c.rule, pending.c.target, pending.c.state, func.sum(pending.c.count).label("waiting"))
    .join(batch, batch.c.batch_id == pending.c.batch_id)
    .where(WAITING, batch.c.state == "committed")
    .group_by(pending.c.rule, pending.c.target, pending.c.state)
    .order_by(pending.c.rule, pending.c.target, pending.c.state)
)

#: The ranges of uncommitted batches, with their runners.
OPEN_RANGES = (
    select(batch.c.runner, batch_range).join(batch, batch.c.batch_id == batch_range.c.batch_id).where(UNCOMMITTED)
)


class Snapshots(Aggregate):
    """The values that are read in one transaction."""

    def read(self, *, of_targets: bool) -> LedgerSnapshot:
        """Return a consistent snapshot of the ledger, even if other processes change it at the same time.

        If `of_targets`, it includes the stats of each target.
        """
        now, host_now = self._now(), datetime.now(UTC)
        scopes: tuple[Scope, ...] = ("bus", "target") if of_targets else ("bus",)
        with self._reading() as connection:
            return LedgerSnapshot(
                now=now,
                host_now=host_now,
                stats=tuple(each for scope in scopes for each in stats_ever(connection, scope)),
                pending=tuple(
                    PendingSum(row.rule, row.target, row.state, int(row.waiting))
                    for row in connection.execute(PENDING_SUMS)
                ),
                offsets=tuple(offsets_of(connection)),
                open_batches=tuple(map(to_batch, connection.execute(OPEN_BATCHES))),
                ranges=tuple((row.runner, to_range(row)) for row in connection.execute(OPEN_RANGES)),
                targets=tuple(TargetStatus(**row._mapping) for row in connection.execute(TARGET_STATUSES)),
                ingestion_stopped=connection.execute(INGESTION_STOP).first() is not None,
                dropped=dropped_total(connection),
            )
