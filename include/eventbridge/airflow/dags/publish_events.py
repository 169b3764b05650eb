"""The Airflow DAG `eventbridge_publish_events`: publishes the events in a form.

Its form is in eventbridge.airflow.forms.publish_events, its task in eventbridge.airflow.publish.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.publish_events import publish_params
from eventbridge.airflow.names import PUBLISH_DAG
from eventbridge.airflow.publish import publish
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings

GUIDE = """
Publishes events to an event bus: trigger the DAG, choose the bus, and paste CloudEvents, one per line or as a JSON
array.

If one of them is not a CloudEvent, nothing is published, and the task logs each error with its position. Otherwise it
logs the number of events, their partitions and offsets, and their ids.
An event without an `id` gets one. `eventbridge bus publish` does the same for files.
"""


def publish_events() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=PUBLISH_DAG,
        description="Publishes the events in a form",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER},
        params=publish_params(choices()),
        tags=["eventbridge", "operate"],
    ) as dag:
        publish()
    return dag
