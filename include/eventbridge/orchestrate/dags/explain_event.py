"""The Airflow DAG `eventbridge_explain_event`: says what became of one event, by a form.

Its form is in eventbridge.orchestrate.forms.explain_event, its task in eventbridge.orchestrate.explain.
"""

from __future__ import annotations

from airflow.sdk import DAG

from eventbridge.orchestrate.explain import explain
from eventbridge.orchestrate.forms.choices import choices
from eventbridge.orchestrate.forms.explain_event import explain_params
from eventbridge.orchestrate.names import EXPLAIN_DAG
from eventbridge.orchestrate.run_limit import run_limit
from eventbridge.orchestrate.schedule import BEGINNING, OWNER, RUN_TYPES
from eventbridge.orchestrate.settings import airflow_settings

GUIDE = """
Says what became of an event: trigger it with the event's id. The task's log has the response, as JSON: where the event
lies, what each rule says to it and which condition fails, how each delivery stands, and all that happened, in order of
time. It changes nothing. A run whose log says that there is no such event has failed.

It does what `eventbridge why EVENT_ID --json` does.
"""


def explain_event() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=EXPLAIN_DAG,
        description="Says what became of one event",
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
