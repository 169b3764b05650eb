"""Publishes events: the task of the DAG `eventbridge_publish_events`, and a hook and an operator for users' DAGs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator, Context, get_current_context, task

from eventbridge.airflow.connections import airflow_connection
from eventbridge.airflow.form_fields import recorded_form
from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import TASK, hide_traceback, stage
from eventbridge.errors import ConnectionUnusable, EventBridgeError, UserError

if TYPE_CHECKING:
    from eventbridge.control.publish import Published
    from eventbridge.control.submissions import PublishResult

log = logging.getLogger(__name__)

#: The XCom in which PublishEventsOperator passes the events to WaitForDeliverySensor, and the most events in it.
PUBLISHED = "published"
MAX_PUBLISHED = 1_000


@task(**TASK, do_xcom_push=False)
@hide_traceback
def publish() -> None:
    """Publish the form's events and log their offsets. If one of them is not a CloudEvent, publish none."""
    context = get_current_context()
    form = context["params"]
    # the record does not contain the events, because they are payloads
    with stage() as runtime, recorded_form(runtime, context, {name: form[name] for name in ("bus", "topic")}):
        EventBridgeHook().publish(form["bus"], form["events"], topic=form["topic"], name=_name(context))


class EventBridgeHook(BaseHook):
    """Publishes to the event buses of the rule files, with this Airflow's settings. Only a task can publish.

    A connection of type `eventbridge_bus` may name the bus and the topic, so that Admin > Connections shows where
    events are published.
    """

    conn_name_attr = "eventbridge_conn_id"
    default_conn_name = "eventbridge_default"
    conn_type = "eventbridge_bus"
    hook_name = "EventBridge bus"

    def __init__(self, eventbridge_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.eventbridge_conn_id = eventbridge_conn_id

    def publish(
        self,
        bus: str | None,
        events: str | Sequence[Mapping[str, Any] | str | bytes],
        *,
        topic: str | None = None,
        name: str = "",
    ) -> Published:
        """Publish CloudEvents and log their number and offsets. If one is not a CloudEvent, none is published.

        If `bus` is None, the events go to the connection's bus. `events` are dicts or JSON strings, or one string with
        JSON lines or a JSON array. An event without an `id` gets one that depends only on `name` and the event's
        position. If the caller made an error, the task fails without a retry.
        """
        return self.publish_each(bus, events, topic=topic, name=name)[0]

    def publish_each(
        self,
        bus: str | None,
        events: str | Sequence[Mapping[str, Any] | str | bytes],
        *,
        topic: str | None = None,
        name: str = "",
    ) -> tuple[Published, list[PublishResult]]:
        """Publish like `publish`, and return the id and the position of each event too."""
        from eventbridge.control.publish import bodies_of, publish_events, report_published

        with stage() as runtime:
            named, topic_of_connection = (bus, None) if bus else self._bus_and_topic()
            published, results = publish_events(
                runtime, named, topic or topic_of_connection, bodies_of(events), name=name
            )
        report_published(published, results, log.info)
        return published, results

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the rules have the connection's bus and topic, with a message that says what to fix."""
        from eventbridge.rules.find import find_bus, find_topic
        from eventbridge.rules.load import load_rules
        from eventbridge.runtime.open import open_runtime

        try:
            bus, topic = self._bus_and_topic()
            settings = airflow_settings()
            if settings.rules_from == "published":
                with closing(open_runtime(settings, airflow_connection)) as runtime:
                    rules = runtime.rule_set()
            else:
                rules = load_rules(Path(settings.rules_folder), cache=settings.rule_cache)
            found = find_bus(rules, bus)
            return True, f"Events go to {bus}/{find_topic(found, topic)}"
        except EventBridgeError as error:
            return False, str(error)

    def _bus_and_topic(self) -> tuple[str, str | None]:
        if self.eventbridge_conn_id is None:
            raise UserError("no bus: set `bus`, or `eventbridge_conn_id` to a connection that names one")
        connection = airflow_connection(self.eventbridge_conn_id)
        if not connection.schema:
            raise ConnectionUnusable(f"Connection {connection.id!r} names no bus. Fill in its field Bus")
        return connection.schema, connection.extra.get("topic") or None


class PublishEventsOperator(BaseOperator):
    """Publishes events to a bus and returns their number. `bus`, `topic` and `events` are templated.

    The XCom `published` has the id and the position of each event, for WaitForDeliverySensor.

    Without `bus`, it uses the bus of the connection `eventbridge_conn_id`, of type `eventbridge_bus`. A retry publishes
    the events again with the same ids, so that a target can recognise repeated deliveries by their delivery id.
    """

    template_fields: Sequence[str] = ("bus", "topic", "events")

    def __init__(
        self,
        *,
        events: str | Sequence[Mapping[str, Any] | str],
        bus: str | None = None,
        topic: str | None = None,
        eventbridge_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bus = bus
        self.events = events
        self.topic = topic
        self.eventbridge_conn_id = eventbridge_conn_id
        self._published: Published | None = None

    def execute(self, context: Context) -> int:
        """Publish the events, and return their number."""
        hook = EventBridgeHook(self.eventbridge_conn_id)
        published, results = hook.publish_each(self.bus, self.events, topic=self.topic, name=_name(context))
        events = [
            {"id": each.event_id, "partition": list(each.partition or ()), "offset": each.offset}
            for each in results[:MAX_PUBLISHED]
        ]
        value = {"bus": published.bus, "count": published.count, "events": events}
        context["ti"].xcom_push(key=PUBLISHED, value=value)
        self._published = published
        return published.count

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the lineage of the task. Only OpenLineage's provider calls this, after the task has ended."""
        from eventbridge.airflow.lineage import publish_lineage

        return publish_lineage(self._published)


def _name(context: Context) -> str:
    """Return a name for the task instance that is the same in each retry."""
    ti = context["ti"]
    return f"{ti.dag_id} {ti.run_id} {ti.task_id} {ti.map_index}"
