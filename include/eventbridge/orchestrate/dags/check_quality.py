"""The Airflow DAG `eventbridge_check_quality`: checks each hour with Great Expectations.

Its form is in eventbridge.orchestrate.forms.check_quality, its task in eventbridge.orchestrate.quality.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from eventbridge.orchestrate.forms.check_quality import quality_params
from eventbridge.orchestrate.names import QUALITY_DAG
from eventbridge.orchestrate.quality import HOURLY, check_hour
from eventbridge.orchestrate.run_limit import run_limit
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.orchestrate.settings import airflow_settings
from eventbridge.orchestrate.slow_lane import give_way_as_old

GUIDE = """
Checks the hour before, ten minutes after it ended: volumes against the same hour of other days, shares of malformed and
duplicate events, of pending deliveries and dead letters, and the fields that rules `expect` something of.

What fails is told by the event `quality.failed` on the bus `eventbridge`, and the run succeeds: a run that fails could
not check. A rule whose `expect` fails is on hold until `eventbridge rules release RULE`. `eventbridge quality list` and
`show` print what was found; the Data Docs page lies in the store, below `quality/`.

A run takes some ten seconds of CPU time, at a lower priority at the processor than deliveries.
"""


def check_quality() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=QUALITY_DAG,
        description="Checks an hour of events, deliveries and outcomes",
        doc_md=GUIDE,
        schedule=CronTriggerTimetable(HOURLY, timezone="UTC"),
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=1,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER, "pre_execute": give_way_as_old},
        params=quality_params(),
        tags=["eventbridge", "quality"],
    ) as dag:
        check_hour()
    return dag
