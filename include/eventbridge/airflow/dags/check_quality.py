"""The Airflow DAG `eventbridge_check_quality`: checks each hour with Great Expectations.

Its form is in eventbridge.airflow.forms.check_quality, its task in eventbridge.airflow.quality.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from eventbridge.airflow.forms.check_quality import quality_params
from eventbridge.airflow.names import QUALITY_DAG
from eventbridge.airflow.quality import HOURLY, check_hour
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.slow_lane import give_way_as_old

GUIDE = """
Checks each hour ten minutes after its end: volumes compared with the same hour of other days, shares of malformed and
duplicate events, of pending deliveries and of dead letters, and the fields in the `expect` of rules.

If a measure fails, the event `quality.failed` is published on the bus `eventbridge`, and the run succeeds: a failed run
means that the check could not run. A rule whose `expect` fails is on hold until `eventbridge rules release RULE`.
`eventbridge quality list` and `show` print the results; the Data Docs page is in the store, below `quality/`.

A run takes about ten seconds of CPU time, at a lower CPU priority than deliveries.
"""


def check_quality() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=QUALITY_DAG,
        description="Checks each hour of events and deliveries",
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
