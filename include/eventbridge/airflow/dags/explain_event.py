"""Defines the DAG `eventbridge_explain_event`, which explains what happened to one event."""

from __future__ import annotations

import json
import logging

from airflow.sdk import DAG, Param, get_current_context, task

from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, proposing
from eventbridge.airflow.names import EXPLAIN_DAG
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit
from eventbridge.airflow.tasks import TASK, hide_traceback, stage

log = logging.getLogger(__name__)

GUIDE = """
Explains what happened to an event: trigger the DAG with the event's id. The task logs the result as JSON: the event's
offset, for each rule whether it matches and which condition fails, the status of each delivery, and everything that
happened, in chronological order. It changes nothing. If there is no such event, the run fails.

`eventbridge events why EVENT_ID --json` does the same.
"""


def explain_event() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=EXPLAIN_DAG,
        description="Explains what happened to one event",
        doc_md=GUIDE,
        schedule=None,
        max_active_runs=4,
        dagrun_timeout=run_limit(airflow_settings()),
        params=explain_params(choices()),
        tags=["eventbridge", "operate"],
        **dag_options(),
    ) as dag:
        explain()
    return dag


@task(**TASK, do_xcom_push=False)
@hide_traceback
def explain() -> None:
    """Log everything that is known about the event that the form names, as JSON.

    The limits of the search, and the files that could not be read, are logged as warnings.
    """
    import msgspec

    from eventbridge.views.trace.explain import why_between

    form = get_current_context()["params"]
    with stage() as runtime:
        found = why_between(runtime, form["event_id"], form["bus"] or None, form["from"] or None, form["to"] or None)
    log.info("%s", json.dumps(msgspec.to_builtins(found), indent=2))
    for each in (*found.notes, *found.unreadable):
        log.warning("%s", each)


def explain_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the event, and where to look for it."""
    text = ["null", "string"]
    return {
        "event_id": Param("", type="string", minLength=1, title="Event", description="The id of the event."),
        "bus": Param(
            None,
            type=text,
            **proposing(propose.buses),
            title="Bus",
            description="Only on this bus; empty: on all buses.",
        ),
        "from": Param(
            None,
            type=text,
            format="date-time",
            title="From",
            description="Only in batches planned at or after this time.",
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Only in batches planned before this time."
        ),
    }
