"""Publishing from Airflow: the form and task of the DAG `publish_events`, and a hook and operator for users' DAGs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator, Context, Param, get_current_context, task

from eventbridge.orchestrate.choices import buses_to_choose
from eventbridge.orchestrate.tasks import STAGE, stage

if TYPE_CHECKING:
    from eventbridge.stages.operate.publish import Published

log = logging.getLogger(__name__)

_EVENTS = (
    "CloudEvents 1.0 as JSON: one a line, or one array of them. "
    'The least is {"specversion": "1.0", "type": "order.placed", "source": "/shop"}; one without an id gets one.'
)


def publish_params() -> dict[str, Param]:
    """Return the form of the DAG: where to, and the events."""
    return {
        "bus": Param(
            "",
            type="string",
            minLength=1,
            examples=buses_to_choose(),
            title="Bus",
            description="An event bus of the rule files.",
        ),
        "topic": Param(None, type=["null", "string"], title="Topic", description="Empty: the first one of the bus."),
        "events": Param("", type="string", format="multiline", minLength=1, title="Events", description=_EVENTS),
    }


@task(**STAGE, do_xcom_push=False)
def publish() -> None:
    """Publish what the form holds, or nothing if an event of it is no CloudEvent; the log says where they lie."""
    context = get_current_context()
    form = context["params"]
    EventBridgeHook().publish(form["bus"], form["events"], topic=form["topic"], name=_name(context))


class EventBridgeHook(BaseHook):
    """Publishes to the event buses that the rule files name, with the settings of this Airflow; in tasks only."""

    def publish(
        self,
        bus: str,
        events: str | Sequence[Mapping[str, Any] | str | bytes],
        *,
        topic: str | None = None,
        name: str = "",
    ) -> Published:
        """Publish CloudEvents, all or none of them, and log how many there are and where they lie.

        `events`: dicts, JSON texts, or one text of JSON lines. One without `id` gets one, the same one for the same
        `name` and place. Fails the task at once, without further tries, for a mistake of its caller.
        """
        from eventbridge.stages.operate.publish import bodies_of, publish_events, told

        with stage() as work:
            published, ids = publish_events(work, bus, topic, bodies_of(events), name=name)
        told(published, ids, log.info)
        return published


class PublishEventsOperator(BaseOperator):
    """Publishes events to a bus; returns how many. `bus`, `topic` and `events` are templated.

    Tried again, it publishes the same ids again: consumers see each delivery at least once, under one delivery id.
    """

    template_fields: Sequence[str] = ("bus", "topic", "events")

    def __init__(
        self, *, bus: str, events: str | Sequence[Mapping[str, Any] | str], topic: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.bus = bus
        self.events = events
        self.topic = topic

    def execute(self, context: Context) -> int:
        """Publish, and return the number of events."""
        return EventBridgeHook().publish(self.bus, self.events, topic=self.topic, name=_name(context)).count


def _name(context: Context) -> str:
    """Return what names a task instance whatever its try."""
    ti = context["ti"]
    return f"{ti.dag_id} {ti.run_id} {ti.task_id} {ti.map_index}"
