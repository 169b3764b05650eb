"""The task of the DAG `eventbridge_send_heartbeat`."""

from __future__ import annotations

import logging

from airflow.sdk import task

from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, stage

log = logging.getLogger(__name__)


@task(task_id="send_heartbeat", **TASK, do_xcom_push=False)
@without_traceback
def send_heartbeat() -> None:
    """Send one heartbeat. If something is unhealthy, the heartbeat and the log say so, and the task still succeeds."""
    from eventbridge.control.heartbeat import beat
    from eventbridge.errors import UserError

    with stage() as runtime:
        connection = runtime.settings.heartbeat_connection
        if connection is None:
            raise UserError(
                "There is no connection for heartbeats. Set EVENTBRIDGE_HEARTBEAT_CONNECTION to the id of one."
            )
        found = beat(runtime, connection)
    for each in found.problems:
        log.error("ALARM: %s", each)
    if not found.problems:
        log.info("heartbeat sent: everything is healthy")
