"""The Airflow DAG `eventbridge_send_heartbeat`: each minute one event to a URL that says how the installation stands.

Its task is in eventbridge.orchestrate.heartbeat.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from eventbridge.orchestrate.heartbeat import send_heartbeat as send
from eventbridge.orchestrate.names import HEARTBEAT_DAG
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.orchestrate.settings import airflow_settings

GUIDE = """
Sends one event each minute to the address that the connection of `EVENTBRIDGE_HEARTBEAT_CONNECTION` holds; without
that setting it runs only when it is triggered, and fails.

A service that misses it calls you: then Airflow's scheduler, its workers or the ledger stand still. `healthy` is true
only if all is reconciled, every runner with events moves, and new events are taken; otherwise the event goes to the
connection's `failure_url`, if it has one.
"""


def send_heartbeat() -> DAG:
    """Return the DAG."""
    is_set = airflow_settings().heartbeat_connection is not None
    with DAG(
        dag_id=HEARTBEAT_DAG,
        description="Says each minute how the installation stands",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable("* * * * *", timezone="UTC") if is_set else None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        dagrun_timeout=timedelta(seconds=120),
        default_args={"owner": OWNER},
        tags=["eventbridge", "monitoring"],
    ) as dag:
        send()
    return dag
