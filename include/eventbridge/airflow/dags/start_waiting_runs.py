"""The Airflow DAG `eventbridge_start_waiting_runs`: the fallback for runs that the watcher did not start.

Its task is in eventbridge.airflow.fallback.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from eventbridge.airflow.fallback import start_runs
from eventbridge.airflow.names import FALLBACK_DAG
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES, fallback_schedule

GUIDE = """
Starts a run of each `eventbridge_deliver_<runner>` whose bus has waiting events, or whose batch is not finished, and a
run of `eventbridge_retry_deliveries` if deliveries are due. The watcher, a trigger in Airflow's triggerer, normally
starts these runs within a second. This DAG is its fallback: it runs every ten minutes, and every minute while no
triggerer runs the watcher or while a bus does not respond to it. A run that finds nothing is this one task.

If you pause this DAG, nothing replaces a watcher that has stopped.
"""


def start_waiting_runs() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=FALLBACK_DAG,
        description="Starts runs that the watcher did not start",
        doc_md=GUIDE,
        schedule=fallback_schedule(),
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        dagrun_timeout=timedelta(seconds=120),
        default_args={"owner": OWNER},
        tags=["eventbridge", "deliver"],
    ) as dag:
        start_runs()
    return dag
