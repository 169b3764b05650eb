"""Finds work that is stuck: late batches, batches whose run died, orphaned replays and redrives, and reopened pools.

The watcher and the DAG `eventbridge_retry_deliveries` use it. Airflow's own deadlines are unsuitable for late batches.
They are measured from when a run was queued, so they also fire for a run that failed early, and a run that was marked
failed within its deadline cannot be cleared (Airflow 3.3 responds with 500).
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
            "ALARM: the %s batch %s%s is late: planned at %s, its state is still %s; check its last run",
            batch.kind,
            batch.batch_id,
            f" of runner {batch.runner}" if batch.runner else "",
            f"{batch.planned_at:%H:%M:%S} UTC",
            batch.state,
        )
    if new:
        runtime.ledger.operational_events.queue([late_batch_event(each, seconds) for each in new])
    return {each.batch_id for each in late}


def _is_late(batch: Batch, now: datetime, seconds: float) -> bool:
    return batch.state != "open" and now - batch.planned_at > timedelta(seconds=seconds)


#: The prefix of a replay's `run` if `replays start` or `replays resume` delivers it in its own process.
_COMMAND = "command "


def orphaned_replay(runtime: Runtime) -> Replay | None:
    """Return the replay that has been orphaned longest, or None. Replays that a command delivers are never returned.

    A replay is orphaned if no run has updated it for as long as two runs may take: the run that planned its last batch,
    and the next run, whose first step is to plan. A run that is waiting for a pool or for capacity updates its replay
    every few seconds. A replay that a server without Airflow recorded is orphaned until a run starts it.
    """
    now = runtime.ledger.now()
    before = now - 2 * run_limit(runtime.settings)
    found = (each for each in runtime.ledger.replays.unattended(now) if not each.run.startswith(_COMMAND))
    return next((each for each in found if each.next_at < before or _is_unstarted(each)), None)


def orphaned_redrive(runtime: Runtime) -> Redrive | None:
    """Return the oldest orphaned redrive among those that a server without Airflow recorded, or None.

    Such a redrive is orphaned until a run starts it, and again if no run has updated it for as long as two runs may
    take.
    """
    before = runtime.ledger.now() - 2 * run_limit(runtime.settings)
    found = runtime.ledger.redrives.recorded()
    return next((each for each in found if each.next_at < before or _is_unstarted(each)), None)


def _is_unstarted(redelivery: Redrive | Replay) -> bool:
    """Return whether a server without Airflow recorded this request, and no run has updated it since."""
    return redelivery.run.startswith(RECORDED) and redelivery.next_at == redelivery.started_at


def is_anything_stale(runtime: Runtime) -> bool:
    """Return whether `settle_stale` has work."""
    from eventbridge.pipeline.retry.plan import stale_batches

    return bool(stale_batches(runtime))


#: The time for which a result is valid. A query takes the ledger a millisecond and, while deliveries are on hold for a
#: closed pool, requires a request to Airflow, which logs it.
_RESULT_VALIDITY = timedelta(seconds=2)
#: The time for which Airflow is not called after a failed request.
_CALL_PAUSE = timedelta(seconds=30)

#: The maximum time that Airflow may take to respond. The watcher is blocked until it does.
_RESPONSE_SECONDS = 1.0


@dataclass
class ReopenedPools:
    """Checks whether a closed pool has slots again while deliveries are still on hold because of it.

    It reads from the ledger which deliveries are on hold because of a closed pool. Only if there are any does it
    request the slots of the pools from Airflow.
    """

    runtime: Runtime
    _until: datetime | None = None
    _found: bool = False
    _airflow: AirflowPools | None = None

    def has_any(self, rules: RuleSet, now: datetime) -> bool:
        """Return whether a pool has slots while deliveries of its rules are still on hold with `pool closed`."""
        if self._until is None or now >= self._until:
            self._until = now + _RESULT_VALIDITY
            self._found = self._query(rules, now)
        return self._found

    def close(self) -> None:
        """Close the connection to Airflow. The next query opens another one."""
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
                "cannot check whether a closed pool has slots again; the next check is in %.0f s: %s",
                _CALL_PAUSE.total_seconds(),
                error,
            )
            self._until = now + _CALL_PAUSE
            self.close()
            return False
        return any(name in pools and pools[name].slots > 0 for name in wanted)
