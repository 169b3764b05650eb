"""The form of the DAG `eventbridge_explain_event`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices, proposing


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
