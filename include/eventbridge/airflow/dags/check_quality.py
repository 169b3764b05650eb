"""Defines the DAG `eventbridge_check_quality`, which checks the events and deliveries of each hour.

It uses Great Expectations.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, Param, get_current_context, task

from eventbridge.airflow.names import QUALITY_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import TASK, give_way_as_old, hide_traceback, stage

log = logging.getLogger(__name__)

GUIDE = """
Checks each hour ten minutes after its end: the volumes compared with the same hour of other days, the shares of
malformed events, duplicate events, pending deliveries and dead letters, and the fields in the `expect` of rules.

If a measure fails, the event `quality.failed` is published on the bus `eventbridge`, and the run still succeeds. A
failed run means that the check could not run. A rule whose `expect` fails is put on hold until `eventbridge rules
release RULE`. `eventbridge quality list` and `show` print the results. The Data Docs page is in the store, below
`quality/`.

A run takes about ten seconds of CPU time, at a lower CPU priority than deliveries.
"""


def check_quality() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=QUALITY_DAG,
        description="Checks each hour of events and deliveries",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable(HOURLY, timezone="UTC"),
        max_active_runs=1,
        dagrun_timeout=run_limit(airflow_settings()),
        params=quality_params(),
        tags=["eventbridge", "quality"],
        **dag_options(pre_execute=give_way_as_old),
    ) as dag:
        check_hour()
    return dag


#: Ten minutes past each hour, when the last batches of the previous hour are committed.
HOURLY = "10 * * * *"


@task(task_id="check_quality", **TASK, do_xcom_push=False)
@hide_traceback
def check_hour() -> None:
    """Check an hour with Great Expectations. If a measure fails, it is reported, and the task still succeeds."""
    from eventbridge.quality.check import check_quality as run
    from eventbridge.quality.record import hour_of

    context = get_current_context()
    asked = context["params"]["hour"]
    after = context["dag_run"].run_after  # it does not depend on how late the task runs or is retried
    hour = datetime.fromisoformat(asked) if asked else hour_of(after) - timedelta(hours=1)
    with stage() as runtime:
        found = run(runtime, hour)
    log.info("%d of %d measures of %s failed; page: %s", len(found.failures), len(found.measures), hour, found.page)


def quality_params() -> dict[str, Param]:
    """Return the form of the DAG: the hour."""
    return {
        "hour": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Hour",
            description="The start of a past hour. Empty: the hour before the run.",
        )
    }
