"""Defines the DAG `eventbridge_publish_events`, which publishes the events in a form."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from eventbridge.airflow.form_fields import NO_CHOICES, Choices, choices, proposing
from eventbridge.airflow.names import PUBLISH_DAG
from eventbridge.airflow.publish import publish
from eventbridge.airflow.schedule import dag_options
from eventbridge.airflow.settings import airflow_settings, run_limit

GUIDE = """
Publishes events to an event bus: trigger the DAG, choose the bus, and paste CloudEvents, one per line or as a JSON
array.

If one of them is not a CloudEvent, nothing is published, and the task logs each error with the event's position.
Otherwise it logs the number of events, their partitions and offsets, and their ids. An event without an `id` gets one.
`eventbridge events publish` publishes the events of a file.
"""


def publish_events() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=PUBLISH_DAG,
        description="Publishes the events in a form",
        doc_md=GUIDE,
        schedule=None,
        dagrun_timeout=run_limit(airflow_settings()),
        params=publish_params(choices()),
        tags=["eventbridge", "operate"],
        **dag_options(),
    ) as dag:
        publish()
    return dag


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
