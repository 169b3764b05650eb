"""The DAG files and the kinds of their DAGs, for tests that parse them."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

DAGS = Path(__file__).parents[2] / "dags"


#: The DAGs that try rules over the archive.
TRIALS = {"eventbridge_backtest_rules", "eventbridge_diff_rules"}

#: The other DAGs without a batch that a person triggers.
ON_REQUEST = {
    "eventbridge_operate_rules",
    "eventbridge_publish_events",
    "eventbridge_explain_event",
    "eventbridge_replay_archive",
}

#: The DAGs whose runs process no batch.
WITHOUT_BATCH = (
    ON_REQUEST
    | {
        "eventbridge_maintain_store",
        "eventbridge_check_quality",
        "eventbridge_send_heartbeat",
        "eventbridge_start_waiting_runs",
    }
    | TRIALS
)

#: The DAGs of every installation.
ALWAYS_PRESENT = {
    "eventbridge_retry_deliveries",
    "eventbridge_redrive_dead_letters",
    "eventbridge_replay_events",
} | WITHOUT_BATCH


def of_batches(dags: dict[str, DAG]) -> list[DAG]:
    """Return the DAGs whose runs process a batch."""
    return [dag for name, dag in dags.items() if name not in WITHOUT_BATCH]


def edges(dag: DAG) -> set[tuple[str, str]]:
    """Return (upstream, downstream) of a DAG's tasks."""
    return {(task.task_id, other) for task in dag.tasks for other in task.downstream_task_ids}
