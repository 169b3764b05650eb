"""How a task triggers the run that goes on with its work: the next batch of a redrive, or of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import DagRunTriggerException


def next_run(dag_id: str, run_id: str, conf: Mapping[str, Any]) -> DagRunTriggerException:
    """Return what a task raises to trigger a run; one that is there already, as the task was tried again, is left."""
    # What TriggerDagRunOperator does; to import that costs every parse of the DAG file more than all the rest.
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
