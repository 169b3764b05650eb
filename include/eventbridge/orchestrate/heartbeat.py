"""The task of the DAG `eventbridge_send_heartbeat`."""

from __future__ import annotations

import logging

from airflow.sdk import task

from eventbridge.orchestrate.plain_failure import plainly
from eventbridge.orchestrate.tasks import TASK, stage

log = logging.getLogger(__name__)


@task(task_id="send_heartbeat", **TASK, do_xcom_push=False)
@plainly
def send_heartbeat() -> None:
    """Send one heartbeat; that something is wrong is told by it and logged, and no failure of the task."""
    from eventbridge.errors import UserError
    from eventbridge.stages.operate.heartbeat import beat

    with stage() as runtime:
        connection = runtime.settings.heartbeat_connection
        if connection is None:
            raise UserError("No connection for heartbeats is named. Set EVENTBRIDGE_HEARTBEAT_CONNECTION to its id.")
        found = beat(runtime, connection)
    for each in found.trouble:
        log.error("ALARM: %s", each)
    if not found.trouble:
        log.info("the heartbeat is sent: all is well")
