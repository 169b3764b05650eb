"""The sensors and the replay operator of users' DAGs, without Airflow's scheduler: arguments, results and errors."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, OKResponse, TriggerDagRun
from cli.conftest import Shop, open_shop

from eventbridge import publish
from eventbridge.airflow import ReplayOperator, WaitForDeliverySensor, WaitForEventSensor, delivery_end
from eventbridge.airflow.delivery_end import DeliveryEnd, DeliveryWait, LedgerView
from eventbridge.airflow.event_watcher import MatchingEvent
from eventbridge.airflow.replay_end import ReplayEnd
from eventbridge.airflow.tasks import stage
from eventbridge.control.queues import acknowledge, receive
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime

BEGUN = datetime(2026, 11, 30, 8, tzinfo=UTC)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop with two rules, in the environment of this process."""
    made = open_shop(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    return made


class Instance:
    """A task instance with the XComs of an earlier task."""

    dag_id, run_id, task_id, map_index, try_number = "mine", "manual", "wait", -1, 1

    def __init__(self, published: Any = None) -> None:
        self._published = published

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        """Return the published events."""
        assert (task_ids, key) == ("publish", "published")
        return self._published


def context(published: Any = None) -> Any:
    """Return what an operator reads from its context."""
    return {"ti": Instance(published), "dag_run": SimpleNamespace(start_date=BEGUN, clear_number=0)}


def order(number: int, amount: float, **more: Any) -> dict[str, Any]:
    """Return an order; rules deliver it by its amount."""
    event = {"specversion": "1.0", "id": f"o{number}", "source": "/shop", "type": "order.placed"}
    return event | {"data": {"amount": amount}} | more


def test_a_sensor_waits_for_events_since_its_run_began(shop: Shop) -> None:
    """It defers with the pattern and the time; `since` is a time with or without a zone."""
    sensor = WaitForEventSensor(task_id="wait", bus="orders", pattern={"type": ["a"]}, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context())
    trigger = deferred.value.trigger
    assert isinstance(trigger, MatchingEvent)
    assert trigger.serialize()[1] == {"bus": "orders", "pattern": '{"type": ["a"]}', "since": BEGUN.isoformat()}
    assert deferred.value.timeout is not None

    sensor = WaitForEventSensor(task_id="wait", bus="orders", since="2026-11-30 09:00:00")
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context())
    assert isinstance(deferred.value.trigger, MatchingEvent)
    assert deferred.value.trigger.since == "2026-11-30T09:00:00+00:00"
    event = order(1, 5)
    assert sensor.return_event(context(), {"events": [event], "without_data": []}) == event


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"bus": "order"}, "Did you mean orders?"),
        ({"bus": "orders", "pattern": {"type": "a"}}, "WaitForEventSensor: the pattern is invalid"),
        ({"bus": "orders", "since": "noon"}, "since is 'noon'"),
        ({"bus": "jobs"}, "the bus 'jobs' is a queue"),
    ],
)
def test_a_sensor_fails_with_the_error_of_its_arguments(shop: Shop, arguments: dict[str, Any], expected: str) -> None:
    """It fails in the worker, before it waits, and is not retried."""
    more = "buses:\n  jobs: {source: {type: sqs, topics: [jobs], connection: aws}}\n"
    (shop.rules / "jobs.yaml").write_text(more)
    with pytest.raises(AirflowFailException, match=expected):
        WaitForEventSensor(task_id="wait", **arguments).execute(context())


def ended(runtime: Runtime, event: dict[str, Any], *wanted: str) -> list[dict[str, Any]] | None:
    """Return the deliveries of an event of the bus `orders` if all have ended, else None."""
    return DeliveryWait("orders", event, *wanted).ended(LedgerView(runtime))


def test_deliveries_have_ended_once_every_rule_has_its_result(shop: Shop) -> None:
    """Nothing is reported before; a dead letter has its reason; an event that no rule delivers has no deliveries."""
    results = publish(
        "orders", [order(1, 500), order(2, 1_500), {**order(3, 1), "type": "other"}, order(4, 2_000)], topic="placed"
    )
    events = [{"id": each.event_id, "partition": each.partition, "offset": each.offset} for each in results]
    with stage() as runtime:
        assert [ended(runtime, each) for each in events] == [None] * 4
        assert ended(runtime, {"id": "o1"}) is None
        assert ended(runtime, {"id": "unknown"}) is None
    shop.deliver()

    with stage() as runtime:
        small, large, other, _ = (ended(runtime, each) for each in events)
        assert small is not None
        assert [(each["rule"], each["target"], each["state"]) for each in small] == [
            ("all-orders", "archive", "delivered")
        ]
        assert large is not None
        states = {f"{each['rule']}/{each['target']}": each["state"] for each in large}
        assert states == {
            "all-orders/archive": "delivered",
            "big-orders/accounts": "delivered",
            "big-orders/note": "dead_lettered",
        }
        assert other == []
        by_id = ended(runtime, {"id": "o2"}, "big-orders", "accounts")
        assert by_id is not None
        assert [each["target"] for each in by_id] == ["accounts"]
    (dead,) = [each for each in large if each["state"] == "dead_lettered"]
    assert "$.data.note" in dead["reason"]


QUEUED = """
rules:
  queued:
    bus: orders
    pattern: {}
    targets: {pull: {type: queue, queue: work, retry: {policy: custom, max_retries: 1, initial_delay: 0s}}}
"""


def test_a_hundred_waits_cost_one_poll(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read only if a batch may have changed a delivery, and the ledger once a second for all waits."""
    (shop.rules / "queued.yaml").write_text(QUEUED)
    results = publish("orders", [order(number, 500) for number in range(100)], topic="placed")
    waits = [
        DeliveryWait("orders", {"id": each.event_id, "partition": each.partition, "offset": each.offset})
        for each in results
    ]
    seconds = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    statements: list[str] = []
    execute = sa.Connection.execute
    monkeypatch.setattr(
        sa.Connection, "execute", lambda *given, **more: statements.append(str(given[1])) or execute(*given, **more)
    )

    with stage() as runtime:
        view = LedgerView(runtime)

        def ended_waits() -> int:
            nonlocal seconds
            seconds += 1
            statements.clear()
            return sum(each.ended(view) is not None for each in waits)

        assert ended_waits() == 0
        assert len(statements) <= 5
        shop.deliver()
        rules = runtime.rule_set()
        assert [ended_waits() for _ in range(3)] == [0, 0, 0]
        looks = sum(each.looks for each in waits)
        assert ended_waits() == 0
        assert len(statements) <= 10
        assert looks == sum(each.looks for each in waits) == 200
        got = receive(runtime, rules, "work", 100)
        acknowledge(runtime, rules, "work", [each.receipt for each in got])
        assert ended_waits() == 0
        shop.deliver()
        assert ended_waits() == 100


def test_the_sensor_fails_with_the_reason_of_a_dead_letter(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It defers only while deliveries have not ended, so a retry needs no trigger; else it returns them."""
    publish("orders", [order(1, 500), order(2, 1_500), {**order(3, 1), "type": "other"}])
    sensor = WaitForDeliverySensor(task_id="wait", bus="orders", event_id=["o1", "o2", "o3"])
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context())
    trigger = deferred.value.trigger
    assert isinstance(trigger, DeliveryEnd)
    shop.deliver()
    monkeypatch.setattr(delivery_end, "_views", [])

    async def first() -> Any:
        return (await anext(trigger.run())).payload

    try:
        ended = asyncio.run(first())
    finally:
        for view in delivery_end._views:
            delivery_end._thread.submit(view.runtime.close).result()

    with pytest.raises(AirflowFailException) as failed:
        sensor.return_deliveries(context(), ended)
    text = str(failed.value)
    assert "event o2 to big-orders/note is a dead letter: " in text
    assert "event o3: no rule delivers it" in text
    assert "o1" not in text
    with pytest.raises(AirflowFailException) as again:
        sensor.execute(context())
    assert str(again.value) == text
    delivered = [each for each in ended["deliveries"] if each["state"] == "delivered"]
    assert sensor.return_deliveries(context(), {"deliveries": delivered, "undelivered": []}) == delivered
    returned = WaitForDeliverySensor(task_id="wait", bus="orders", event_id="o1").execute(context())
    assert returned is not None
    (one,) = returned
    assert (one["rule"], one["state"]) == ("all-orders", "delivered")


@pytest.mark.parametrize(
    ("arguments", "published", "expected"),
    [
        ({"published_by": "publish"}, None, "the task 'publish' has published nothing in this run"),
        ({"published_by": "publish"}, {"bus": "orders", "count": 1_001, "events": []}, "at most 1,000"),
        ({"published_by": "publish"}, [{"bus": "orders", "count": 600, "events": []}] * 2, "published 1,200 events"),
        (
            {"published_by": "publish"},
            [{"bus": name, "count": 1} for name in "ab"],
            "a and b. Use a sensor for each bus",
        ),
        (
            {"published_by": "publish", "bus": "o"},
            {"bus": "orders", "count": 1, "events": [{}]},
            "'orders', not 'o'",
        ),
        ({"bus": "orders", "event_id": ""}, None, "event_id is empty"),
        ({"bus": "orders", "event_id": "o1", "rule": "big-order"}, None, "Did you mean big-orders?"),
        ({"bus": "orders", "event_id": "o1", "target": "acounts"}, None, "Did you mean accounts?"),
    ],
)
def test_a_delivery_sensor_names_what_is_wrong(
    shop: Shop, arguments: dict[str, Any], published: Any, expected: str
) -> None:
    """An error of a user fails the task before it waits."""
    with pytest.raises(AirflowFailException, match=expected):
        WaitForDeliverySensor(task_id="wait", **arguments).execute(context(published))


@pytest.mark.parametrize("arguments", [{}, {"published_by": "a", "bus": "b", "event_id": "c"}, {"event_id": "c"}])
def test_a_delivery_sensor_needs_one_way_to_name_events(arguments: dict[str, Any]) -> None:
    """Otherwise the DAG has an import error."""
    with pytest.raises(UserError, match="give either published_by"):
        WaitForDeliverySensor(task_id="wait", **arguments)


def test_a_replay_starts_a_run_and_waits_for_its_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry of the task continues the same replay; at the end the task returns or fails by the replay's state."""
    publish("orders", [order(1, 500)])
    shop.deliver()
    sent: list[TriggerDagRun] = []
    monkeypatch.setattr(
        task_runner,
        "SUPERVISOR_COMMS",
        SimpleNamespace(send=lambda message: sent.append(message) or OKResponse(ok=True)),
        raising=False,
    )
    operator = ReplayOperator(task_id="replay", bus="orders", since="1h", rules="all-orders")
    deferred = []
    for _ in range(2):
        with pytest.raises(TaskDeferred) as raised:
            operator.execute(context())
        deferred.append(raised.value)

    (replay_id,) = {each.kwargs["replay_id"] for each in deferred if each.kwargs}
    trigger = deferred[0].trigger
    assert isinstance(trigger, ReplayEnd)
    assert trigger.replay_id == replay_id
    assert {(each.dag_id, json.dumps(each.conf)) for each in sent} == {
        ("eventbridge_replay_events", json.dumps({"replay_id": replay_id}))
    }
    with stage() as runtime:
        runtime.ledger.replays.end(replay_id, "done")
    result = operator.return_counts(context(), {"state": "done"}, replay_id)
    assert result == {"replay_id": replay_id, "read": 0, "taken": 0, "outcomes": {}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"rules": []}, "no rules given"),
        ({"rules": ["all-order"]}, "Did you mean all-orders?"),
        ({"rules": "*", "since": "soon"}, "soon"),
        ({"rules": "*", "pattern": {"type": "a"}}, "the pattern is invalid"),
    ],
)
def test_a_replay_names_what_is_wrong(shop: Shop, arguments: dict[str, Any], expected: str) -> None:
    """Nothing is recorded."""
    with pytest.raises(AirflowFailException, match=expected):
        ReplayOperator(**{"task_id": "replay", "bus": "orders", "since": "1h", **arguments}).execute(context())
    with stage() as runtime:
        assert runtime.ledger.replays.all() == []


def test_a_replay_whose_dag_is_missing_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay is recorded, and the error names the DAG that delivers it."""
    publish("orders", [order(1, 500)])
    shop.deliver()
    refused = ErrorResponse.model_validate({"error": "API_SERVER_ERROR", "detail": {"status_code": 404}})
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: refused), raising=False)
    with pytest.raises(AirflowFailException, match="does not start a run of eventbridge_replay_events"):
        ReplayOperator(task_id="replay", bus="orders", since="1h", rules="*").execute(context())
