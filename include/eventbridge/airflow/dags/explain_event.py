"""The Airflow DAG `eventbridge_explain_event`: explains what happened to one event, by a form.

Its form is in eventbridge.airflow.forms.explain_event, its task in eventbridge.airflow.explain.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.airflow.explain import explain
from eventbridge.airflow.forms.choices import choices
from eventbridge.airflow.forms.explain_event import explain_params
from eventbridge.airflow.names import EXPLAIN_DAG
from eventbridge.airflow.run_limit import run_limit
from eventbridge.airflow.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.airflow.settings import airflow_settings

GUIDE = """
Explains what happened to an event: trigger the DAG with the event's id. The task logs the result as JSON: the event's
offset, whether each rule matches it and which condition fails, the status of each delivery, and the history in order
of time. It changes nothing. If there is no such event, the run fails.

`eventbridge why EVENT_ID --json` does the same.
"""


def explain_event() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=EXPLAIN_DAG,
        description="Explains what happened to one event",
        doc_md=GUIDE,
        schedule=None,
        start_date=BEGINNING,
        catchup=False,
        allowed_run_types=RUN_TYPES,
        max_active_runs=4,
        dagrun_timeout=run_limit(airflow_settings()),
        default_args={"owner": OWNER},
        params=explain_params(choices()),
        tags=["eventbridge", "operate"],
    ) as dag:
        explain()
    return dag
