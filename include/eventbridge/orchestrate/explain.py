"""The task and the form of the DAG `explain_event`."""

from __future__ import annotations

import json
import logging

from airflow.sdk import Param, get_current_context, task

from eventbridge.orchestrate.tasks import STAGE, stage

log = logging.getLogger(__name__)


def explain_params() -> dict[str, Param]:
    """Return the form of the DAG: which event, and where it is looked for."""
    text = ["null", "string"]
    return {
        "event_id": Param(
            "", type="string", minLength=1, title="Event", description="The id of the event, as it is written."
        ),
        "bus": Param(None, type=text, title="Bus", description="Only on this bus; empty: on all."),
        "from": Param(
            None, type=text, format="date-time", title="From", description="Only in batches planned from then on."
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Only in batches planned before then."
        ),
    }


@task(**STAGE, do_xcom_push=False)
def explain() -> None:
    """Log, as JSON, all that is known of the event of the form, and warn of what could not be read."""
    import msgspec

    from eventbridge.stages.operate.why import why_between

    form = get_current_context()["params"]
    with stage() as work:
        found = why_between(work, form["event_id"], form["bus"] or None, form["from"] or None, form["to"] or None)
    log.info("%s", json.dumps(msgspec.to_builtins(found), indent=2))
    for each in (*found.notes, *found.unreadable):
        log.warning("%s", each)
