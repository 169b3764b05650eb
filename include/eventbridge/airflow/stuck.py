"""Finds stuck work for the watcher: late batches, orphaned batches and requests, and pools that were reopened.

Airflow's own deadlines are unsuitable for late batches. They are measured from when a run was queued, so they also fire
for a run that failed early, and a run that was marked failed within its deadline cannot be cleared (Airflow 3.3
responds with 500).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from eventbridge.airflow.airflow_api import CONNECTION_ID
from eventbridge.airflow.pools import AirflowPools
from eventbridge.airflow.settings import run_limit
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.model.pending import POOL_CLOSED
from eventbridge.model.redelivery import RECORDED
from eventbridge.policy.operational_event import late_batch_event
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime

if TYPE_CHECKING:
    from eventbridge.model.batch import Batch
    from eventbridge.model.redelivery import Redrive, Replay

log = logging.getLogger(__name__)


def report_late_batches(runtime: Runtime, now: datetime, known: Collection[str]) -> set[str]:
    """Log each late batch that is not in `known`, queue its event `batch.late`, and return the ids of all late batches.

    The open batch of a streaming task is never late, because the streaming task closes it.
    """
    seconds = runtime.settings.batch_late_after
    late = [each for each in runtime.ledger.batches.uncommitted() if _is_late(each, now, seconds)]
    new = [each for each in late if each.batch_id not in known]
    for batch in new:
        log.error(
            "ALARM: the %s batch %s of runner %s is late: planned at %s, now %s; check its last run",
            *(batch.kind, batch.batch_id, batch.runner or "none", f"{batch.planned_at:%H:%M:%S} UTC", batch.state),
        )
    if new:
        runtime.ledger.operational_events.queue([late_batch_event(each, seconds) for each in new])
    return {each.batch_id for each in late}


def _is_late(batch: Batch, now: datetime, seconds: float) -> bool:
    return batch.state != "open" and now - batch.planned_at > timedelta(seconds=seconds)


#: The prefix of a replay's `run` if `eventbridge replay` processes the replay in its own process.
_COMMAND = "command "


def orphaned_replay(runtime: Runtime) -> Replay | None:
    """Return the replay that has been orphaned the longest, None if there is none; never one that a command processes.

    A replay is orphaned if no run has updated it for as long as two runs may take: the run that planned its last batch,
    and the next one, which plans first. Runs that wait for a pool or for capacity update it every few seconds.
    A replay that a server without Airflow recorded is orphaned until a run starts it.
    """
    now = runtime.ledger.now()
    before = now - 2 * run_limit(runtime.settings)
    found = (each for each in runtime.ledger.replays.unattended(now) if not each.run.startswith(_COMMAND))
    return next((each for each in found if each.next_at < before or _is_unstarted(each)), None)


def orphaned_redrive(runtime: Runtime) -> Redrive | None:
    """Return the oldest orphaned redrive that a server without Airflow recorded; None if there is none."""
    before = runtime.ledger.now() - 2 * run_limit(runtime.settings)
    found = runtime.ledger.redrives.recorded()
    return next((each for each in found if each.next_at < before or _is_unstarted(each)), None)


def _is_unstarted(redelivery: Redrive | Replay) -> bool:
    """Return whether a server without Airflow recorded a request that no run has updated since."""
    return redelivery.run.startswith(RECORDED) and redelivery.next_at == redelivery.started_at


def is_anything_stale(runtime: Runtime) -> bool:
    """Return whether `settle_stale` has work."""
    from eventbridge.pipeline.retry.plan import stale_batches

    return bool(stale_batches(runtime))


#: How long a result is valid. A query costs the ledger a millisecond and, while something is on hold, Airflow a request
#: and a line in its access log.
_RESULT_VALIDITY = timedelta(seconds=2)
#: How long Airflow is not called after it failed to respond.
_SILENCE = timedelta(seconds=30)

#: How long Airflow may take to respond; the watcher is blocked meanwhile.
_RESPONSE_SECONDS = 1.0


@dataclass
class ReopenedPools:
    """Finds pools that have slots again while deliveries are on hold for them.

    It reads from the ledger which deliveries wait for a closed pool and, only if there are any, the pools' slots from
    Airflow.
    """

    runtime: Runtime
    _until: datetime | None = None
    _found: bool = False
    _airflow: AirflowPools | None = None

    def has_any(self, rules: RuleSet, now: datetime) -> bool:
        """Return whether a pool has slots while its deliveries are still on hold with `pool closed`."""
        if self._until is None or now >= self._until:
            self._until = now + _RESULT_VALIDITY
            self._found = self._query(rules, now)
        return self._found

    def close(self) -> None:
        """Close the connection to Airflow; the next query opens another."""
        if self._airflow is not None:
            self._airflow.close()
            self._airflow = None

    def _query(self, rules: RuleSet, now: datetime) -> bool:
        targets = self.runtime.ledger.pending.waiting_targets()
        closed = {each.rule for each in targets if each.hold_reason == POOL_CLOSED}
        wanted = {rules.rules[name].pool_name for name in closed if name in rules.rules}
        if not wanted:
            return False
        try:
            if self._airflow is None:
                self._airflow = AirflowPools(self.runtime.connections(CONNECTION_ID), _RESPONSE_SECONDS)
            pools = self._airflow.pools()
        except (InfrastructureError, UserError) as error:
            log.warning(
                "cannot check whether a closed pool is open again; the next check is in %s: %s", _SILENCE, error
            )
            self._until = now + _SILENCE
            self.close()
            return False
        return any(name in pools and pools[name].slots > 0 for name in wanted)
