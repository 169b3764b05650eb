"""Plans the next batch of a redrive or replay, and triggers the next run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import DagRunTriggerException

from eventbridge.errors import ReconciliationError

if TYPE_CHECKING:
    from eventbridge.control.consecutive_batches import Plan
    from eventbridge.runtime.runtime import Runtime


def next_run(dag_id: str, run_id: str, conf: Mapping[str, Any]) -> DagRunTriggerException:
    """Return the exception that a task raises to trigger a run.

    It has no effect if the run exists already, as after a retry of the task.
    """
    # This is what TriggerDagRunOperator does, whose import would cost each parse of a DAG file more than all the rest.
    return DagRunTriggerException(
        trigger_dag_id=dag_id,
        dag_run_id=run_id,
        conf=dict(conf),
        reset_dag_run=False,
        skip_when_already_exists=True,
        wait_for_completion=False,
        allowed_states=[],
        failed_states=[],
        poke_interval=1,
        deferrable=False,
    )


#: The maximum pause before planning again, because a batch of another process may end earlier than planned.
_POLL_SECONDS = 1.0
#: How long a run waits for a plan before it leaves the batch to the next run. A run that waited longer would reach its
#: timeout, and no run would continue.
PLAN_TIMEOUT_SECONDS = 60.0

Planned = TypeVar("Planned", bound="Plan")


def plan_with_retries(
    runtime: Runtime, plan: Callable[[], Planned], patience_seconds: float = PLAN_TIMEOUT_SECONDS
) -> Planned:
    """Plan until the plan has a batch or nothing to wait for; return the last plan after `patience_seconds` at most.

    Batches whose runs died are settled meanwhile, because planning may wait for one. If one cannot be settled,
    `settle_stale` logs it, and a run of `eventbridge_retry_deliveries` fails.
    """
    from eventbridge.pipeline.retry.plan import settle_stale

    began = time.monotonic()
    while True:
        with suppress(ReconciliationError):
            settle_stale(runtime)
        planned = plan()
        if planned.batch_id is not None or planned.wait_until is None:
            return planned
        if time.monotonic() - began >= patience_seconds:
            return planned
        wait = (planned.wait_until - runtime.ledger.now()).total_seconds()
        time.sleep(min(max(wait, 0.0), _POLL_SECONDS))
