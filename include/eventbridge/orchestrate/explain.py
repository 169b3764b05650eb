"""The task of the DAG `explain_event`."""

from __future__ import annotations

import json
import logging

from airflow.sdk import get_current_context, task

from eventbridge.orchestrate.tasks import STAGE, stage

log = logging.getLogger(__name__)


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
