"""How a task triggers the run of the next batch of a redrive or replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import DagRunTriggerException


def next_run(dag_id: str, run_id: str, conf: Mapping[str, Any]) -> DagRunTriggerException:
    """Return the exception that a task raises to trigger a run; does nothing if the run exists, as after a retry of the
    task.
    """
    # As TriggerDagRunOperator does; its import would cost each parse of the DAG file more than everything else.
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
