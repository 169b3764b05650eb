"""The form of the DAG `eventbridge_publish_events`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices, proposing

_EVENTS = (
    "CloudEvents 1.0 as JSON: one per line, or one array of them. "
    'The minimum is {"specversion": "1.0", "type": "order.placed", "source": "/shop"}; an event without an id gets one.'
)


def publish_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the bus, the topic and the events."""
    return {
        "bus": Param(
            "",
            type="string",
            minLength=1,
            **proposing(propose.buses),
            title="Bus",
            description="An event bus of the rule files.",
        ),
        "topic": Param(None, type=["null", "string"], title="Topic", description="Empty: the first topic of the bus."),
        "events": Param("", type="string", format="multiline", minLength=1, title="Events", description=_EVENTS),
    }
