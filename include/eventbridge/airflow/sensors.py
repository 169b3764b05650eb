"""Deferred sensors for users' DAGs: one waits for an event on a bus, the other until events are delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.delivery_end import DeliveryEnd
from eventbridge.airflow.event_watcher import MatchingEvent, pattern_text
from eventbridge.airflow.publish import MAX_PUBLISHED, PUBLISHED
from eventbridge.airflow.tasks import stage
from eventbridge.errors import UserError


class WaitForEventSensor(BaseSensorOperator):
    """Waits for the first event on a bus that matches a pattern, and returns it.

    It considers events that were published at or after `since` (ISO 8601, or a time): by default, since the DAG run
    began. Without a pattern, any event ends the wait. The wait takes no worker; all sensors of a bus share one poll.
    `bus`, `pattern` and `since` are templated.
    """

    template_fields: Sequence[str] = ("bus", "pattern", "since")

    def __init__(
        self,
        *,
        bus: str,
        pattern: Mapping[str, Any] | str | None = None,
        since: datetime | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bus = bus
        self.pattern = pattern
        self.since = since

    def execute(self, context: Context) -> None:
        """Check the arguments, and defer to the triggerer."""
        from eventbridge.airflow.bus_reader import queue_refusal
        from eventbridge.rules.find import find_bus

        with stage() as runtime:
            pattern = pattern_text(self.pattern, "WaitForEventSensor")
            bus = find_bus(runtime.rule_set(), self.bus)
            if bus.source.is_queue:
                raise UserError(queue_refusal(bus))
            since = _time(self.since) if self.since else context["dag_run"].start_date or runtime.ledger.now()
        self.log.info("waiting for an event on the bus %s that was published at or after %s", self.bus, since)
        self.defer(
            trigger=MatchingEvent(self.bus, pattern, since.isoformat()),
            method_name="return_event",
            timeout=timedelta(seconds=self.timeout),
        )

    def return_event(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event, as a dict in the JSON format of CloudEvents."""
        first: dict[str, Any] = event["events"][0]
        self.log.info("event %s of source %s, type %s", first["id"], first["source"], first["type"])
        if event["without_data"]:
            self.log.warning("the event is too large for Airflow, so it is returned without its data")
        return first


class WaitForDeliverySensor(BaseSensorOperator):
    """Waits until the deliveries of events have ended, and returns them. Fails, with the reason, on a dead letter.

    The events are those that an earlier PublishEventsOperator, mapped or not, published (`published_by`: its task id),
    or those with the id or ids `event_id` on the bus `bus`. `rule` and `target` limit the deliveries; by default, all
    deliveries of all rules must end. It fails if no rule delivers an event. `bus`, `event_id`, `rule` and `target` are
    templated.
    """

    template_fields: Sequence[str] = ("bus", "event_id", "rule", "target")

    def __init__(
        self,
        *,
        published_by: str | None = None,
        bus: str | None = None,
        event_id: str | Sequence[str] | None = None,
        rule: str | None = None,
        target: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (published_by is None) == (event_id is None) or (event_id is not None and bus is None):
            raise UserError(
                f"WaitForDeliverySensor {self.task_id}: give either published_by, the id of an earlier task that is a "
                "PublishEventsOperator, or bus and event_id"
            )
        self.published_by = published_by
        self.bus = bus
        self.event_id = event_id
        self.rule = rule
        self.target = target

    def execute(self, context: Context) -> list[dict[str, Any]] | None:
        """Check the arguments, and defer to the triggerer, unless all deliveries have ended.

        A trigger that fires at once may fail the task (apache/airflow 72716), so its retry must not need one.
        """
        from eventbridge.airflow.delivery_end import already_ended, check_wanted

        bus, events = self._events(context)
        with stage() as runtime:
            check_wanted(runtime, bus, self.rule, self.target)
            ended = already_ended(runtime, bus, events, self.rule, self.target)
        if ended is not None:
            return self.return_deliveries(context, ended)
        self.log.info("waiting for the deliveries of %d events of the bus %s", len(events), bus)
        self.defer(
            trigger=DeliveryEnd(bus, events, self.rule, self.target),
            method_name="return_deliveries",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def return_deliveries(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the deliveries. Raises AirflowFailException if one is a dead letter, or if an event has none."""
        deliveries: list[dict[str, Any]] = event["deliveries"]
        for each in deliveries:
            self.log.info("event %s to %s/%s: %s", *(each[name] for name in ("event_id", "rule", "target", "state")))
        dead = [each for each in deliveries if each["state"] == "dead_lettered"]
        problems = [
            f"event {each['event_id']} to {each['rule']}/{each['target']} is a dead letter: {each['reason']}"
            for each in dead
        ]
        problems += [f"event {each}: no rule delivers it" for each in event["undelivered"]]
        if problems:
            more = f"\nand {len(problems) - 20} more" if len(problems) > 20 else ""
            raise AirflowFailException("\n".join(problems[:20]) + more)
        return deliveries

    def _events(self, context: Context) -> tuple[str, list[dict[str, Any]]]:
        if self.published_by is None:
            ids = [self.event_id] if isinstance(self.event_id, str) else list(self.event_id or ())
            if not ids or not all(ids):
                raise AirflowFailException("event_id is empty. Give the id of an event, or a list of ids")
            return str(self.bus), [{"id": each} for each in ids]
        pulled = context["ti"].xcom_pull(task_ids=self.published_by, key=PUBLISHED)
        # A mapped task has a value for each of its instances.
        published = [each for each in (pulled if isinstance(pulled, list) else [pulled]) if each]
        if not published:
            raise AirflowFailException(
                f"the task {self.published_by!r} has published nothing in this run. published_by must be the id of a "
                "PublishEventsOperator that runs before this sensor"
            )
        buses = sorted({str(each["bus"]) for each in published})
        if len(buses) > 1:
            raise AirflowFailException(
                f"the task {self.published_by!r} published to {' and '.join(buses)}. Use a sensor for each bus"
            )
        if self.bus not in (None, buses[0]):
            raise AirflowFailException(f"the task {self.published_by!r} published to {buses[0]!r}, not {self.bus!r}")
        count = sum(each["count"] for each in published)
        if count > MAX_PUBLISHED:
            raise AirflowFailException(
                f"the task {self.published_by!r} published {count:,} events. One sensor waits for at most "
                f"{MAX_PUBLISHED:,}: publish fewer events in a task"
            )
        return buses[0], [event for each in published for event in each["events"]]


def _time(since: datetime | str) -> datetime:
    """Return a time with a time zone; without one it is in UTC."""
    try:
        found = datetime.fromisoformat(since) if isinstance(since, str) else since
    except ValueError:
        raise UserError(f"since is {since!r}. Write a time such as 2026-11-30T08:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
