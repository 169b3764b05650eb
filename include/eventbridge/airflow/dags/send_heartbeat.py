"""Defines the DAG `eventbridge_send_heartbeat`, which sends the health of the installation to a URL each minute."""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from eventbridge.airflow.names import HEARTBEAT_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import TASK, hide_traceback, stage

log = logging.getLogger(__name__)

GUIDE = """
Sends one event each minute to the URL of the connection that `EVENTBRIDGE_HEARTBEAT_CONNECTION` names. Without that
setting it runs only when it is triggered, and fails.

Let a monitoring service alert you when the heartbeat stops, because then Airflow's scheduler, its workers or the ledger
are down. `healthy` is true only if all batches are reconciled, every runner with events makes progress, no batch has
been open for long, all buses respond, and ingestion is running. If it is false, the event goes to the connection's
`failure_url`, provided that it has one.
"""


def send_heartbeat() -> DAG:
    """Return the DAG."""
    is_set = airflow_settings().heartbeat_connection is not None
    with DAG(
        dag_id=HEARTBEAT_DAG,
        description="Sends the health of the installation each minute",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable("* * * * *", timezone="UTC") if is_set else None,
        max_active_runs=1,
        dagrun_timeout=timedelta(seconds=120),
        tags=["eventbridge", "monitoring"],
        **dag_options(),
    ) as dag:
        send()
    return dag


@task(task_id="send_heartbeat", **TASK, do_xcom_push=False)
@hide_traceback
def send() -> None:
    """Send one heartbeat. If something is unhealthy, the heartbeat and the log show it, and the task still succeeds."""
    from eventbridge.control.heartbeat import send_to_connection
    from eventbridge.errors import UserError

    with stage() as runtime:
        connection = runtime.settings.heartbeat_connection
        if connection is None:
            raise UserError(
                "There is no connection for heartbeats. Set EVENTBRIDGE_HEARTBEAT_CONNECTION to the id of one."
            )
        found = send_to_connection(runtime, connection)
    for each in found.problems:
        log.error("ALARM: %s", each)
    if not found.problems:
        log.info("heartbeat sent: everything is healthy")
