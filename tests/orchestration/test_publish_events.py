"""Publishing from Airflow: the DAG's form, the operator and the hook, on a real embedded bus."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import set_current_context

from eventbridge.airflow.publish import EventBridgeHook, PublishEventsOperator
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import messages_of

DAGS = Path(__file__).parents[2] / "dags"
ORDER = {"specversion": "1.0", "type": "order.placed", "source": "/shop"}


def bodies(home: Path) -> list[bytes]:
    """Return the bodies of all events on the bus."""
    bus = EmbeddedBus(home / "bus", "orders", topics=("events",), clock=lambda: datetime.now(UTC))
    with closing(bus):
        blocks = [bus.read(partition, bus.earliest(partition), bus.end(partition)) for partition in bus.partitions()]
        return [message.body for each in blocks for message in messages_of(each)]


class _Instance:
    """The fields of a task instance that an operator reads, and the XComs that it pushes."""

    dag_id, run_id, task_id, map_index = "mine", "manual", "publish", -1

    def __init__(self) -> None:
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep an XCom."""
        self.xcoms[key] = value


def test_a_retried_operator_publishes_the_same_ids(home: Path) -> None:
    """An event without an id gets one that depends on the task instance and its position, not on the retry."""
    operator = PublishEventsOperator(task_id="publish", bus="orders", events=[{**ORDER, "id": "o1"}, ORDER])
    context: Any = {"ti": _Instance()}

    assert (operator.execute(context), operator.execute(context)) == (2, 2)

    published = context["ti"].xcoms["published"]
    assert (published["bus"], published["count"]) == ("orders", 2)
    assert published["events"][0]["id"] == "o1"
    assert all(len(each["partition"]) == 3 and each["offset"] >= 0 for each in published["events"])
    ids = [json.loads(body)["id"] for body in bodies(home)]
    assert len(ids) == 4
    assert len(set(ids)) == 2


def test_the_log_has_the_number_and_the_offsets_of_events(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of a form are published unchanged, and the log has bus, partition, offsets and ids."""
    event = '{"id": "o1", "specversion": "1.0", "type": "t", "source": "/s", "data": {"n": 1.10}}'
    with caplog.at_level(logging.INFO):
        EventBridgeHook().publish("orders", f"\n{event}\n")

    assert bodies(home) == [event.encode()]
    assert "1 published to orders/events" in caplog.text
    assert "offsets 0 to 0" in caplog.text
    assert "ids: o1" in caplog.text


def test_an_array_keeps_its_digits(home: Path) -> None:
    """A form may contain one JSON array, whose elements are published unchanged."""
    event = '{"id": "o1", "specversion": "1.0", "type": "t", "source": "/s", "data": 1.10}'
    EventBridgeHook().publish("orders", f"[{event},\n {event.replace('o1', 'o2')} ]")

    assert sorted(bodies(home)) == [event.encode(), event.replace("o1", "o2").encode()]


@pytest.mark.parametrize(
    ("bus", "events", "expected"),
    [
        ("orders", [ORDER, {"type": "t"}], "event 2: $.source: a CloudEvent must have it"),
        (
            "orders",
            [{**ORDER, "id": "o1"}, {**ORDER, "id": "o1"}],
            "event 2: source '/shop' has the id 'o1' twice, here and in event 1",
        ),
        ("orders", "", "no event to publish"),
        ("orders", "[1 2]", "line 1, column 4: expected , or ]"),
        ("order", [ORDER], "Did you mean orders?"),
    ],
)
def test_an_error_publishes_nothing_and_is_not_retried(home: Path, bus: str, events: Any, expected: str) -> None:
    """The task fails at once with the position and the remedy, and the bus stays empty."""
    with pytest.raises(AirflowFailException) as failure:
        EventBridgeHook().publish(bus, events)

    assert expected in str(failure.value)
    assert bodies(home) == []


def test_every_error_of_every_event_is_named(home: Path) -> None:
    """Each error has a line with the event's number, and nothing is published."""
    several = {"id": 7, "type": "", "time": "noon", "data": 1, "data_base64": "AA=="}
    with pytest.raises(AirflowFailException) as failure:
        EventBridgeHook().publish("orders", [ORDER, several, {"type": "t"}])

    lines = str(failure.value).splitlines()
    assert [line.partition(":")[0] + line.partition(":")[2].partition(":")[0] for line in lines[1:]] == [
        "event 2 $.id",
        "event 2 $.type",
        "event 2 $.time",
        "event 2 $.source",
        "event 2 $.specversion",
        "event 2 $.data_base64",
        "event 3 $.source",
        "event 3 $.specversion",
    ]
    assert bodies(home) == []


def test_the_number_of_reported_errors_is_bounded(home: Path) -> None:
    """200 lines, and the number of other errors; an event with a thousand errors does not hide the others."""
    wrong = {**ORDER, **{f"Name{number}": 1 for number in range(1_000)}}
    with pytest.raises(AirflowFailException) as failure:
        EventBridgeHook().publish("orders", [wrong, *({"type": "t"} for _ in range(150))])

    lines = str(failure.value).splitlines()
    assert len(lines) == 202
    assert sum(line.startswith("event 1: ") for line in lines) == 21
    assert "event 1: and 980 more" in lines
    assert lines[-1] == "and 121 more"


def test_a_connection_may_name_the_bus(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `bus` the operator uses a connection of type eventbridge_bus; a connection without a bus fails the
    task.
    """
    monkeypatch.setenv(
        "AIRFLOW_CONN_SHOP", '{"conn_type": "eventbridge_bus", "schema": "orders", "extra": {"topic": null}}'
    )
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", '{"conn_type": "eventbridge_bus"}')
    context: Any = {"ti": _Instance()}

    assert PublishEventsOperator(task_id="publish", eventbridge_conn_id="shop", events=[ORDER]).execute(context) == 1
    assert len(bodies(home)) == 1
    with pytest.raises(AirflowFailException, match="'empty' names no bus"):
        PublishEventsOperator(task_id="publish", eventbridge_conn_id="empty", events=[ORDER]).execute(context)
    with pytest.raises(AirflowFailException, match="no bus: set `bus`, or `eventbridge_conn_id`"):
        PublishEventsOperator(task_id="publish", events=[ORDER]).execute(context)


def test_the_dag_publishes_the_events_of_its_form(home: Path) -> None:
    """The task of the DAG gets bus and events from the run's parameters."""
    task: Any = DagBag(DAGS).dags["eventbridge_publish_events"].get_task("publish")
    run: Any = {"dag": task.dag, "dag_run": SimpleNamespace(triggering_user_name="ada"), "run_id": "manual__1"}
    form = {"bus": "orders", "topic": None, "events": json.dumps(ORDER)}
    context: Any = run | {"ti": _Instance(), "params": form}

    with set_current_context(context):
        task.python_callable()

    (body,) = bodies(home)
    assert json.loads(body)["type"] == "order.placed"
