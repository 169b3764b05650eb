"""The task of the DAG `eventbridge_explain_event`."""

from __future__ import annotations

import json
import logging

from airflow.sdk import get_current_context, task

from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, stage

log = logging.getLogger(__name__)


@task(**TASK, do_xcom_push=False)
@without_traceback
def explain() -> None:
    """Log, as JSON, everything known about the form's event, and warn about files that could not be read."""
    import msgspec

    from eventbridge.views.trace.explain import why_between

    form = get_current_context()["params"]
    with stage() as runtime:
        found = why_between(runtime, form["event_id"], form["bus"] or None, form["from"] or None, form["to"] or None)
    log.info("%s", json.dumps(msgspec.to_builtins(found), indent=2))
    for each in (*found.notes, *found.unreadable):
        log.warning("%s", each)
