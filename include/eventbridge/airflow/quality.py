"""The task of the DAG `eventbridge_check_quality`."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from airflow.sdk import get_current_context, task

from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, stage

log = logging.getLogger(__name__)

#: Ten minutes past each hour: the last batches of the hour before are committed by then.
HOURLY = "10 * * * *"


@task(task_id="check_quality", **TASK, do_xcom_push=False)
@without_traceback
def check_hour() -> None:
    """Check an hour with Great Expectations. A failed measure is reported, and the task still succeeds."""
    from eventbridge.quality.check import check_quality as run
    from eventbridge.quality.record import hour_of

    context = get_current_context()
    asked = context["params"]["hour"]
    after = context["dag_run"].run_after  # the same hour, however late the task runs or is retried
    hour = datetime.fromisoformat(asked) if asked else hour_of(after) - timedelta(hours=1)
    with stage() as runtime:
        found = run(runtime, hour)
    log.info("%d measures of %s, %d failed: %s", len(found.measures), hour, len(found.failures), found.page)
