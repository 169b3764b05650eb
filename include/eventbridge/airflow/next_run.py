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

    If the run already exists, as after a retry of the task, Airflow triggers nothing and marks the task as skipped.
    """
    # TriggerDagRunOperator does the same, but importing it would take longer than the rest of a DAG file's parse.
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


#: The maximum pause before planning again. It is short because a batch of another process may end earlier than planned.
_POLL_SECONDS = 1.0
#: The time that a run waits for a batch before it leaves planning to the next run. A run that waited longer would reach
#: its timeout, and no run would continue the redrive or replay.
PLAN_TIMEOUT_SECONDS = 60.0

Planned = TypeVar("Planned", bound="Plan")


def plan_with_retries(
    runtime: Runtime, plan: Callable[[], Planned], patience_seconds: float = PLAN_TIMEOUT_SECONDS
) -> Planned:
    """Repeat `plan` until it returns a batch, or nothing to wait for, or until `patience_seconds` have passed.

    Returns the last plan. Before each attempt, batches whose runs died are settled, because the plan may wait for one
    of them. If one cannot be settled, `settle_stale` logs it, and a run of `eventbridge_retry_deliveries` fails.
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
