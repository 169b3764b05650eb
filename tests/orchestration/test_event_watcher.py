"""Watchers and sensors of users' DAGs in Airflow's own shared streams, on a real bus and ledger.

`test_killed_triggerers.py` kills a real triggerer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.sdk.module_loading import import_string  # type: ignore[attr-defined]
from airflow.triggers.shared_stream import SharedStreamManager
from orchestration.fake_airflow import FakeAirflow, serving

from eventbridge.airflow import EventBridgeWatcher, bus_reader, bus_stream
from eventbridge.airflow.asset_event_payload import MAX_EVENT_BYTES
from eventbridge.airflow.event_watcher import MatchingEvent
from eventbridge.airflow.subscriptions import subscriptions_of
from eventbridge.errors import BusError, LedgerError, UserError
from eventbridge.ledger import Ledger
from eventbridge.ledger.airflow import AssetWatchers, asset_watcher
from eventbridge.model.partition import WatcherPosition
from eventbridge.sources.embedded.bus import EmbeddedBus

PLACED = {"type": ["order.placed"]}


class Runner:
    """Runs triggers as Airflow's triggerer does, and records their events as Airflow's database would."""

    def __init__(self) -> None:
        self.manager = SharedStreamManager(
            log=structlog.get_logger(), max_subscriber_queue=1024, ack_timeout=300, cohort_grace_period=0
        )
        self.recorded: list[tuple[str, dict[str, Any]]] = []
        self.records = 1 << 30  # the number of events that Airflow records before it dies
        self._ids = itertools.count()

    def start(self, trigger: Any, *assets: str) -> asyncio.Task[Any]:
        """Run a trigger for assets, or for a sensor."""
        if assets:
            trigger.asset_state_store = SimpleNamespace(_by_name=dict.fromkeys(assets))
        return asyncio.ensure_future(self._run(next(self._ids), trigger, assets))

    async def _run(self, trigger_id: int, trigger: Any, assets: tuple[str, ...]) -> Any:
        key = trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        payload = None
        try:
            async for event in trigger.filter_shared_stream(stream):
                payload = event.payload
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                if self.records > 0:
                    self.records -= 1
                    self.recorded += [(asset, event.payload) for asset in assets or ("",)]
                    if seq is not None:
                        asyncio.get_running_loop().call_later(0.05, self.manager.confirm_persisted, [seq])
        finally:
            await self.manager.unsubscribe(trigger_id, key)
        return payload

    def ids(self, asset: str = "orders") -> list[str]:
        """Return the ids of the events of an asset's asset events, in their order."""
        return [event["id"] for name, payload in self.recorded if name == asset for event in payload["events"]]


@pytest.fixture(autouse=True)
def fast(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the home, and wait less than in production."""
    home.mkdir(mode=0o700)
    monkeypatch.setattr(bus_stream, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(bus_stream, "_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(bus_reader, "_BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(bus_reader, "_AWAY_SECONDS", 0.5)
    monkeypatch.setattr(bus_reader, "_SETTLING", timedelta(0))


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAirflow]:
    """Serve Airflow's API, which the connection eventbridge_airflow names."""
    with serving() as server:
        connection = {"conn_type": "http", "host": "127.0.0.1", "port": server.server_port}
        connection |= {"login": "admin", "password": "right"}
        monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW", json.dumps(connection))
        yield server


def publish(home: Path, *ids: str, type: str = "order.placed", **more: Any) -> None:
    """Publish events to the bus `orders`."""
    (home / "bus").mkdir(parents=True, exist_ok=True)
    bus = EmbeddedBus(home / "bus", "orders", topics=("events",), clock=lambda: datetime.now(UTC))
    with closing(bus):
        event = {"specversion": "1.0", "source": "/shop", "type": type, **more}
        bus.publish([(json.dumps({**event, "id": each}).encode(), "one partition") for each in ids])


def watch(steps: Callable[[Runner], Awaitable[None]], runner: Runner | None = None) -> Runner:
    """Run steps beside the triggers that they start, then stop all triggers, like a triggerer that ends."""
    runner = runner or Runner()

    async def run() -> None:
        before = asyncio.all_tasks()
        try:
            await asyncio.wait_for(steps(runner), 60)
        finally:
            for task in asyncio.all_tasks() - before:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await runner.manager.stop_all()

    asyncio.run(run())
    return runner


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    while not condition():
        await asyncio.sleep(0.03)


def position(home: Path) -> Any:
    """Return the recorded position of the watcher of the asset `orders`."""
    with closing(Ledger.open(f"sqlite:///{home}/ledger.sqlite")) as ledger, ledger.database.reading() as connection:
        return connection.execute(asset_watcher.select()).one_or_none()


def positions(home: Path) -> dict[str, int]:
    """Return the number of the last recorded asset event of each asset."""
    with closing(Ledger.open(f"sqlite:///{home}/ledger.sqlite")) as ledger, ledger.database.reading() as connection:
        return {row.asset: row.sequence for row in connection.execute(asset_watcher.select())}


async def begun(home: Path) -> None:
    """Wait until the watcher has a position."""
    await until(lambda: position(home) is not None)


def test_a_matching_event_becomes_an_asset_event(home: Path) -> None:
    """Its payload has the event; events before the watcher's start and other types have none."""
    publish(home, "before")

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, "o1", data={"n": 1})
        publish(home, "other", type="order.archived")
        publish(home, "o2")
        await until(lambda: len(runner.ids()) == 2)

    runner = watch(steps)

    assert runner.ids() == ["o1", "o2"]
    payload = runner.recorded[0][1]
    assert payload.pop("position")["sequence"] == 1
    assert payload == {
        "bus": "orders",
        "events": [
            {"specversion": "1.0", "source": "/shop", "type": "order.placed", "id": "o1", "data": {"n": 1}},
        ],
        "without_data": [],
    }


def test_a_hundred_watchers_of_a_bus_cost_one_poll(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus is asked for its end once a poll, and each message is read once, whatever the number of watchers."""
    asked, read = [], []
    ends, reads = EmbeddedBus.ends, EmbeddedBus.read

    def count_ends(self: EmbeddedBus) -> Any:
        asked.append(1)
        return ends(self)

    def count_reads(self: EmbeddedBus, *range: Any) -> Any:
        read.append(range)
        return reads(self, *range)

    monkeypatch.setattr(EmbeddedBus, "ends", count_ends)
    monkeypatch.setattr(EmbeddedBus, "read", count_reads)
    polls = []
    poll = bus_reader.BusReader.poll

    def count_polls(self: bus_reader.BusReader, room: int) -> Any:
        polls.append(1)
        return poll(self, room)

    monkeypatch.setattr(bus_reader.BusReader, "poll", count_polls)

    async def steps(runner: Runner) -> None:
        for number in range(100):
            runner.start(EventBridgeWatcher("orders", {"subject": [f"s{number}"]}), f"asset{number}")
        await until(lambda: all(each.offsets for each in subscriptions_of("orders")) and len(polls) > 3)
        assert len(subscriptions_of("orders")) == 100
        read.clear()
        publish(home, "o1", subject="s41")
        await until(lambda: runner.ids("asset41"))

    runner = watch(steps)

    assert [asset for asset, _ in runner.recorded] == ["asset41"]
    assert len(asked) <= len(polls)
    assert len(read) == 1


@pytest.mark.parametrize("recorded", range(5))
def test_each_event_is_recorded_once_whatever_airflow_recorded_before_a_crash(
    home: Path, airflow: FakeAirflow, recorded: int
) -> None:
    """After a crash, the watcher reads from Airflow which of the asset events in doubt it has recorded."""
    first, second = Runner(), Runner()
    first.records = recorded

    async def dies(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, *(f"o{number}" for number in range(4)))
        await until(lambda: position(home).claimed == 4 and len(runner.ids()) == recorded)

    async def continues(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        publish(home, "last")
        await until(lambda: "last" in runner.ids())

    watch(dies, first)
    airflow.asset_events = [
        {"name": asset, "extra": {"from_trigger": True, "payload": payload}} for asset, payload in first.recorded
    ]
    airflow.asset_events += [{"name": "orders", "extra": {}}, {"name": "other", "extra": {"payload": "text"}}]
    watch(continues, second)

    assert first.ids() + second.ids() == ["o0", "o1", "o2", "o3", "last"]


@pytest.mark.parametrize(
    ("dags", "served", "queued", "expected"),
    [
        ({"on_order": False}, [], [], [1, 1, 0]),
        ({"on_order": False, "idle": True}, ["on_order"], [], [1, 1]),
        ({"on_order": False, "other": False}, ["on_order"], [], [1, 1, 0]),
        ({"on_order": False}, [], ["on_order"], [1, 1]),
    ],
)
def test_an_asset_event_that_the_scheduler_passed_over_is_followed_by_an_empty_one(
    home: Path,
    airflow: FakeAirflow,
    monkeypatch: pytest.MonkeyPatch,
    dags: dict[str, bool],
    served: list[str],
    queued: list[str],
    expected: list[int],
) -> None:
    """Of asset events that come at once, Airflow hands the later ones to the run of the next asset event only.

    A DAG that is paused, or that the scheduler is going to run, needs no further asset event.
    """
    monkeypatch.setattr(bus_reader, "_WAKE_SECONDS", 0.2)
    airflow.dags, airflow.queued = dags, queued

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, "o1", "o2")
        await until(lambda: len(runner.ids()) == 2)
        airflow.asset_events = [
            {"id": number, "asset_id": 7, "name": "orders", "extra": {"payload": payload}, "created_dagruns": []}
            for number, (_, payload) in enumerate(runner.recorded)
        ]
        airflow.asset_events[-1]["created_dagruns"] = [{"dag_id": each} for each in served]
        await until(lambda: ("GET", "/api/v2/assets/7") in airflow.requests)
        await asyncio.sleep(0.5)

    runner = watch(steps)

    assert [len(payload["events"]) for _, payload in runner.recorded] == expected


def test_a_watcher_waits_while_airflow_cannot_tell_what_it_recorded(
    home: Path, airflow: FakeAirflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the connection it neither loses nor repeats an event, and the log names the remedy."""
    first, second = Runner(), Runner()
    first.records = 0

    async def dies(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, "o1")
        await until(lambda: position(home).claimed == 1)

    async def continues(runner: Runner) -> None:
        connection = json.loads(os.environ["AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW"])
        monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW", json.dumps({**connection, "password": "wrong"}))
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await until(lambda: "must be able to read assets and DAGs" in caplog.text)
        requests = len(airflow.requests)
        await asyncio.sleep(0.3)
        assert len(airflow.requests) <= requests + 1  # it does not try at every poll
        assert runner.ids() == []
        monkeypatch.setenv("AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW", json.dumps(connection))
        await until(lambda: runner.ids() == ["o1"])

    watch(dies, first)
    watch(continues, second)

    assert "the watcher of the asset orders on the bus orders waits" in caplog.text


def test_a_watcher_that_was_replaced_sends_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If another triggerer runs the watcher, only the newer one makes asset events."""

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        (one,) = subscriptions_of("orders")
        await until(lambda: one.offsets is not None)
        with closing(Ledger.open(f"sqlite:///{home}/ledger.sqlite")) as ledger:
            ledger.asset_watchers.own("rival", WatcherPosition("orders", "orders", "", {}))
        monkeypatch.setattr(bus_reader, "_BEGIN_SECONDS", float("inf"))  # it does not take the position back
        publish(home, "o1")
        await until(lambda: "another triggerer runs it too" in caplog.text)
        assert runner.ids() == []

    watch(steps)


def test_the_position_survives_a_change_of_the_pattern(home: Path) -> None:
    """A changed DAG continues after the last event that the former pattern saw."""

    async def before(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, "o1")
        await until(lambda: position(home).sequence == 1)

    async def after(runner: Runner) -> None:
        publish(home, "o2", type="order.archived")
        runner.start(EventBridgeWatcher("orders", {"type": ["order.archived"]}), "orders")
        await until(runner.ids)

    assert watch(before).ids() == ["o1"]
    assert watch(after).ids() == ["o2"]


def test_two_watchers_of_an_asset_on_one_bus_need_names(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without names the second one waits for the end of the first, and the log says so."""

    async def steps(runner: Runner) -> None:
        former = runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        runner.start(EventBridgeWatcher("orders", {"type": ["order.archived"]}), "orders")
        runner.start(EventBridgeWatcher("orders", {"type": ["order.lost"]}, name="lost"), "orders")
        await until(lambda: "give each of them a `name`" in caplog.text)
        await until(lambda: sum(each.offsets is not None for each in subscriptions_of("orders")) == 2)
        publish(home, "o1", type="order.archived")
        publish(home, "o2", type="order.lost")
        await until(lambda: runner.ids() == ["o2"])
        former.cancel()
        await until(lambda: runner.ids() == ["o2", "o1"])

    watch(steps)


def test_assets_with_one_trigger_get_the_same_events(home: Path) -> None:
    """Airflow runs equal watchers of several assets as one trigger; an asset that joins misses nothing from then on."""

    async def before(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "a")
        await until(lambda: any(each.offsets for each in subscriptions_of("orders")))
        publish(home, "o1")
        await until(lambda: runner.ids("a") == ["o1"])
        await until(lambda: positions(home) == {"a": 1})

    async def after(runner: Runner) -> None:
        publish(home, "o2")
        runner.start(EventBridgeWatcher("orders", PLACED), "a", "b")
        await until(lambda: runner.ids("a") == ["o2"])
        publish(home, "o3")
        await until(lambda: positions(home) == {"a": 3, "b": 3})

    watch(before)
    runner = watch(after)

    assert runner.ids("a") == runner.ids("b") == ["o2", "o3"]


def test_a_watcher_does_not_make_asset_events_of_its_own_asset_events(home: Path) -> None:
    """The listener publishes each asset event, which would match a watcher of that bus without a pattern, forever."""
    changed = {"type": "org.apache.airflow.asset.changed"}

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders"), "orders")
        await begun(home)
        publish(home, "own", **changed, data={"asset": {"name": "orders"}})
        publish(home, "other", **changed, data={"asset": {"name": "lake"}})
        publish(home, "odd", **changed, data="text")
        await until(lambda: len(runner.ids()) == 2)

    assert watch(steps).ids() == ["other", "odd"]


def test_a_micro_batch_has_many_events(home: Path) -> None:
    """With `batch`, an asset event has up to that many events; the next one waits until Airflow recorded the last."""

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED, batch=3), "orders")
        await begun(home)
        publish(home, *(f"o{number}" for number in range(7)))
        await until(lambda: len(runner.ids()) == 7)

    runner = watch(steps)

    assert [len(payload["events"]) for _, payload in runner.recorded] == [3, 3, 1]
    assert runner.ids() == [f"o{number}" for number in range(7)]


def test_a_large_event_comes_without_its_data(home: Path) -> None:
    """The payload says so; attributes that are larger still are cut."""

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", batch=10), "orders")
        await begun(home)
        publish(home, "small", data="x" * (MAX_EVENT_BYTES - 1_000))
        publish(home, "large", data="x" * MAX_EVENT_BYTES)
        publish(home, "vast", subject="x" * MAX_EVENT_BYTES)
        await until(lambda: len(runner.ids()) == 3)

    runner = watch(steps)

    events = {event["id"]: event for _, payload in runner.recorded for event in payload["events"]}
    assert [each for _, payload in runner.recorded for each in payload["without_data"]] == ["large", "vast"]
    assert "data" in events["small"]
    assert "data" not in events["large"]
    assert events["large"]["type"] == "order.placed"
    assert len(events["vast"]["subject"]) == 1_024


def test_values_that_databases_refuse_are_replaced(home: Path) -> None:
    """NUL, lone surrogates and numbers beyond 64 bits would make every attempt to record the asset event fail."""

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders"), "orders")
        await begun(home)
        publish(home, "o1", data={"a\0": "\ud800", "n": 1 << 70, "small": -(2**63), "f": 1.5})
        await until(runner.ids)

    event = watch(steps).recorded[0][1]["events"][0]

    assert event["data"] == {"a\ufffd": "\ufffd", "n": str(1 << 70), "small": -(2**63), "f": 1.5}


def test_an_outage_loses_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A poll that fails in the ledger or the bus is repeated with the same events."""
    claim, ends = AssetWatchers.claim, EmbeddedBus.ends
    failures = {"claim": 2, "ends": 2}

    def fail(name: str, error: Exception, call: Any) -> Any:
        def failing(*given: Any) -> Any:
            if failures[name] > 0 and position(home) is not None:
                failures[name] -= 1
                raise error
            return call(*given)

        return failing

    monkeypatch.setattr(AssetWatchers, "claim", fail("claim", LedgerError("the ledger is away"), claim))
    monkeypatch.setattr(EmbeddedBus, "ends", fail("ends", BusError("the bus is away"), ends))

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("orders", PLACED), "orders")
        await begun(home)
        publish(home, "o1", "o2")
        await until(lambda: len(runner.ids()) >= 2)
        await until(lambda: position(home).sequence == 2)

    assert watch(steps).ids() == ["o1", "o2"]
    assert failures == {"claim": 0, "ends": 0}
    assert caplog.text.count("the ledger is away") == 1


def test_a_bus_that_cannot_be_watched_is_reported(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A queue is refused with the alternative; an unknown bus gets a suggestion, and starts once a rule file has it."""
    rules = home.parent / "rules" / "more.yaml"
    rules.write_text("buses:\n  jobs: {source: {type: sqs, topics: [jobs], connection: aws}}\n")

    async def steps(runner: Runner) -> None:
        runner.start(EventBridgeWatcher("jobs"), "jobs")
        runner.start(EventBridgeWatcher("order"), "orders")
        await until(lambda: "reading a message takes it from the rules" in caplog.text)
        await until(lambda: "Did you mean orders?" in caplog.text)
        rules.write_text("buses:\n  order: {source: {type: embedded}}\n")
        await begun(home)

    watch(steps)

    assert "target of type airflow" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"bus": ""}, "no bus given"),
        ({"bus": "orders", "pattern": {"type": "order.placed"}}, "the pattern is invalid"),
        ({"bus": "orders", "pattern": "{"}, "the pattern is invalid"),
        ({"bus": "orders", "pattern": {"type": [object()]}}, "the pattern is not JSON"),
        ({"bus": "orders", "batch": 0}, "from 1 to 1,000"),
        ({"bus": "orders", "start_at": "now"}, "latest or earliest"),
    ],
)
def test_errors_are_found_when_the_dag_is_parsed(arguments: dict[str, Any], expected: str) -> None:
    """Airflow shows them as the import error of the DAG file."""
    with pytest.raises(UserError, match=expected):
        EventBridgeWatcher(**arguments)


def test_a_trigger_is_restored_from_its_serialization() -> None:
    """`serialize` names the class and its arguments, and all triggers of a bus have one key."""
    watcher = EventBridgeWatcher("orders", PLACED, batch=5, start_at="earliest", name="big")
    sensor = MatchingEvent("orders", None, "2026-11-30T00:00:00+00:00")
    for trigger in (watcher, sensor):
        path, arguments = trigger.serialize()
        assert import_string(path)(**arguments).serialize() == (path, arguments)
    assert watcher.shared_stream_key() == sensor.shared_stream_key() != EventBridgeWatcher("jobs").shared_stream_key()


def test_a_sensor_finds_an_event_that_was_published_before_it_began(home: Path) -> None:
    """It reports the first match since its time, once, and needs no watcher."""
    publish(home, "early")
    since = datetime.now(UTC)
    publish(home, "other", type="order.archived")
    publish(home, "o1", "o2")

    async def steps(runner: Runner) -> None:
        found = await runner.start(MatchingEvent("orders", json.dumps(PLACED), since.isoformat()))
        assert [each["id"] for each in found["events"]] == ["o1"]

    watch(steps)
    assert position(home) is None
