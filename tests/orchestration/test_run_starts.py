"""When the watcher starts a run: the pure decision, and the look at a real ledger and a real bus."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from orchestration.fake_airflow import serving

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import BusError
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.ledger.watcher import last_look
from eventbridge.model.batch import Batch, Range
from eventbridge.model.partition import Partition
from eventbridge.model.pending import PendingDeliveries
from eventbridge.orchestrate.names import runner_subject
from eventbridge.orchestrate.run_start import RunStart, SubjectState, needs_start, started
from eventbridge.orchestrate.watch import Watch
from eventbridge.orchestrate.watcher import Watcher, look
from eventbridge.rule.model import Bus
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.runtime.runtime import Runtime

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float, mark: object = "old") -> RunStart:
    """Return a start of a run that was so long ago."""
    return RunStart(NOW - timedelta(seconds=seconds), mark)


@pytest.mark.parametrize(
    ("seen", "last", "expected"),
    [
        (SubjectState(waiting=False, busy=False, mark="new"), None, False),
        (SubjectState(waiting=True, busy=False, mark="new"), None, True),
        (SubjectState(waiting=True, busy=True, mark="new"), None, False),
        (SubjectState(waiting=True, busy=False, mark="new"), ago(1.0), True),
        (SubjectState(waiting=True, busy=False, mark="new"), ago(0.9), False),
        (SubjectState(waiting=True, busy=False, mark="old"), ago(5.0), False),
        (SubjectState(waiting=True, busy=True, mark="new"), ago(5.0), False),
        (SubjectState(waiting=True, busy=False, mark="old"), ago(15.0), True),
        (SubjectState(waiting=True, busy=True, mark="old"), ago(15.0), True),
        (SubjectState(waiting=False, busy=False, mark="old"), ago(15.0), False),
        (SubjectState(waiting=True, busy=True, mark="new", beside=True), None, True),
        (SubjectState(waiting=True, busy=True, mark="new", beside=True), ago(4.9), False),
        (SubjectState(waiting=True, busy=True, mark="new", beside=True), ago(5.0), True),
        (SubjectState(waiting=True, busy=True, mark="old", beside=True), ago(5.0), False),
        (SubjectState(waiting=True, busy=False, mark="new", beside=True), ago(1.0), True),
        (SubjectState(waiting=False, busy=True, mark="old", unfinished=True), ago(59.9), False),
        (SubjectState(waiting=False, busy=True, mark="old", unfinished=True), ago(60.0), True),
    ],
    ids=[
        "nothing waits",
        "first",
        "a batch is under way",
        "responded",
        "at most once a second",
        "not responded to yet",
        "its batch is not delivered",
        "lost start",
        "run that died",
        "never for nothing",
        "beside one that is under way",
        "not so soon beside one",
        "beside one after 5 s",
        "not responded to yet, beside one",
        "the next one after it",
        "a minute is not over",
        "what is begun and not ended is looked after once a minute",
    ],
)
def test_a_run_starts_when_something_waits_and_the_last_batch_is_delivered(
    seen: SubjectState, last: RunStart | None, expected: bool
) -> None:
    """Level-triggered, not more than once a second, and again after 15 s without a response."""
    assert needs_start(seen, last, NOW) is expected


def started_at(seen: SubjectState, seconds: int) -> list[int]:
    """Return the seconds at which a subject gets a run that stands as seen for so long, with one look a second."""
    last: RunStart | None = None
    at = []
    for second in range(seconds):
        now = NOW + timedelta(seconds=second)
        if needs_start(seen, last, now):
            last = started(seen, last, now)
            at.append(second)
    return at


def test_a_start_whose_runs_change_nothing_is_repeated_at_growing_intervals() -> None:
    """15 s, then twice as long each time, up to ten minutes: a missing connection fails 8 runs an hour, not 240."""
    assert started_at(SubjectState(waiting=True, busy=False, mark="m", progress="p"), 3_600) == [
        *(0, 15, 45, 105, 225, 465, 945),
        *(1_545, 2_145, 2_745, 3_345),
    ]


def test_a_start_is_repeated_every_15_s_if_runs_without_work_are_useful() -> None:
    """Such as a run that looks whether the disk has room again."""
    assert started_at(SubjectState(waiting=True, busy=False, mark="m"), 61) == [0, 15, 30, 45, 60]


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "unfinished"])
def test_progress_of_a_run_resets_the_interval(waiting: bool) -> None:
    """Any progress since the last start counts, and the doubling begins again."""
    before = RunStart(NOW, "m", progress="planned", repeats=6)
    seen = SubjectState(waiting=waiting, busy=True, mark="m", unfinished=True, progress="routed")
    first = timedelta(seconds=15 if waiting else 60)

    assert not needs_start(seen, before, NOW + first - timedelta(seconds=1))
    assert needs_start(seen, before, NOW + first)
    assert started(seen, before, NOW + first).repeats == 0
    unmoved = replace(seen, progress="planned")
    assert not needs_start(unmoved, before, NOW + timedelta(seconds=599))
    assert needs_start(unmoved, before, NOW + timedelta(seconds=600))


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that is moved by hand."""
    return Clock()


@pytest.fixture
def watch(home: Path, clock: Clock) -> Iterator[Watch]:
    """Open a watch over a real ledger and bus; runner `night` is registered and has nothing to do."""
    settings = Settings(home=home, rules_folder=home.parent / "rules")
    opened = Watch(Runtime.open(settings, connections_from_environment({}), clock))
    with bus(opened) as orders:
        for runner in ("orders", "night"):
            opened.runtime.ledger.register_partitions(runner, "orders", dict.fromkeys(orders.partitions(), 0))
    yield opened
    opened.close()


def bus(watch: Watch) -> EmbeddedBus:
    """Open the bus to publish on."""
    return EmbeddedBus(watch.runtime.settings.bus_folder, "orders", clock=watch.runtime.clock)


def publish(watch: Watch, count: int = 1) -> None:
    """Put events on the bus."""
    with bus(watch) as orders:
        orders.publish([(b"{}", "key")] * count)


def take(watch: Watch, runner: str) -> Batch:
    """Plan a batch of all that waits for a runner."""
    batch = Batch(f"{runner}-{watch.runtime.clock():%S%f}", "normal", runner, "orders", "planned", "cafe", NOW)
    committed = watch.runtime.ledger.committed_offsets(runner)
    with bus(watch) as orders:
        ranges = [Range(partition, committed[partition], end) for partition, end in orders.ends().items()]
    assert watch.runtime.ledger.plan_batch(batch, ranges)
    return batch


def settle(watch: Watch, batch: Batch) -> None:
    """Move a planned batch on to where its pushes are over."""
    ledger = watch.runtime.ledger
    assert ledger.move_batch(batch.batch_id, "planned", "buffered")
    assert ledger.publish_chunks(batch.batch_id, NOW + timedelta(days=1), [])
    assert ledger.begin_settlement(batch.batch_id)


def commit(watch: Watch, batch: Batch) -> None:
    """Move a planned batch through all states."""
    ledger = watch.runtime.ledger
    settle(watch, batch)
    assert ledger.commit_batch(batch.batch_id, batch.runner, ledger.ranges(batch.batch_id), NOW, "000000")


def test_the_fallback_starts_what_waits_or_is_unfinished(watch: Watch, clock: Clock) -> None:
    """While the watcher works: nothing if nothing waits, and neither what it started a run for counts nor when."""
    watch.look()
    assert watch.subjects_to_start() == []

    publish(watch)
    watch.look()
    assert watch.subjects_to_start() == ["events_night", "events_orders"]
    commit(watch, take(watch, "night"))
    take(watch, "orders")
    assert "events_orders" in watch.subjects_to_start()


def test_the_fallback_starts_every_run_while_the_watcher_does_not_poll(watch: Watch, clock: Clock) -> None:
    """Before the watcher has ever looked, and a minute after its last look."""
    every = ["due_deliveries", "events_night", "events_orders"]
    assert sorted(watch.subjects_to_start()) == every
    watch.look()
    assert watch.subjects_to_start() == []
    clock.later(60)
    assert sorted(watch.subjects_to_start()) == every


def test_no_run_starts_while_nothing_waits(watch: Watch, clock: Clock) -> None:
    """A quiet bus costs Airflow nothing, however long."""
    for _ in range(3):
        clock.later(60)
        assert watch.look() == []


def test_a_batch_whose_run_died_gets_a_run_each_minute(watch: Watch, clock: Clock) -> None:
    """Though nothing else waits: the fallback looks every ten minutes only."""
    publish(watch)
    watch.look()
    done = take(watch, "night")
    commit(watch, done)
    watch.runtime.ledger.mark_bus_committed(done.batch_id)
    take(watch, "orders")
    clock.later(59)
    assert watch.look() == []
    clock.later(1)

    assert watch.look() == ["events_orders"]
    assert watch.look() == []


def test_a_streaming_task_that_ends_soon_gets_a_run_until_it_has_a_standby(watch: Watch, clock: Clock) -> None:
    """Else it takes what comes by itself, and no run starts."""
    ledger = watch.runtime.ledger
    ledger.acquire_streaming_lease("orders", "one", NOW + timedelta(seconds=60))
    publish(watch)
    assert watch.look() == ["events_night"]
    ledger.request_standby("orders", "one")
    assert watch.look() == ["events_orders"]
    ledger.register_standby("orders", "two", NOW + timedelta(seconds=20))
    clock.later(16)
    assert "events_orders" not in watch.look()
    clock.later(16)  # the standby is gone

    assert "events_orders" in watch.look()


def test_a_dead_streaming_task_gets_a_run_when_its_lease_expires(watch: Watch, clock: Clock) -> None:
    """Though its batch is open, and a run started just before: a second run takes it over."""
    ledger = watch.runtime.ledger
    publish(watch)
    assert "events_orders" in watch.look()
    ledger.acquire_streaming_lease("orders", "one", NOW + timedelta(seconds=6))
    with bus(watch) as orders:
        ranges = [Range(partition, 0, 0) for partition in orders.partitions()]
    assert ledger.plan_batch(Batch("batch", "normal", "orders", "orders", "open", "cafe", NOW), ranges)
    ledger.record_open("batch", {ranges[0].partition: 1}, None)
    publish(watch)
    clock.later(5)
    assert "events_orders" not in watch.look()
    clock.later(2)

    assert "events_orders" in watch.look()


def test_a_streaming_task_whose_process_is_gone_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """Of the same host: that of another is waited for until its lease is over."""
    ledger = watch.runtime.ledger
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    publish(watch)
    for host, is_rung in (("another.example", False), (socket.gethostname(), True)):
        ledger.acquire_streaming_lease("orders", f"{host}:{gone.pid}:1", NOW + timedelta(seconds=60))
        assert ("events_orders" in watch.look()) == is_rung
        ledger.release_streaming_lease("orders", f"{host}:{gone.pid}:1")


def test_changed_rules_get_a_run_without_an_event(watch: Watch, clock: Clock) -> None:
    """Once, within a minute."""
    watch.look()
    rule = "rules: {x: {bus: orders, runner: night, pattern: {}, targets: {log: {type: file, path: /tmp/never.jsonl}}}}"
    (watch.runtime.settings.rules_folder / "extra.yaml").write_text(rule)
    clock.later(3)
    assert watch.look() == []
    clock.later(60)

    assert sorted(watch.look()) == ["events_night", "events_orders"]
    clock.later(60)
    assert watch.look() == []


def looked(watch: Watch) -> datetime | None:
    """Return when the ledger says that the watcher looked last."""
    return last_look(engine_of(watch.runtime.settings.ledger_url), 5)


def test_the_watcher_records_its_polls_in_the_ledger(watch: Watch, clock: Clock) -> None:
    """A look is noted every 20 s, but not while a bus is silent, whose runners are left to the fallback."""
    watch.look()
    first = looked(watch)
    assert first is not None
    clock.later(19)
    watch.look()
    assert looked(watch) == first
    clock.later(1)
    watch.look()
    second = looked(watch)
    assert second is not None
    assert second > first
    down = "buses: {down: {source: {type: kafka, connection: nowhere, topics: [a]}}}\n"
    rule = "rules: {down: {bus: down, pattern: {}, targets: {t: {type: file, path: /tmp/never.jsonl}}}}\n"
    (watch.runtime.settings.rules_folder / "down.yaml").write_text(down + rule)
    clock.later(20)
    watch.look()

    assert looked(watch) == second


def test_a_runner_that_never_ran_gets_a_run(home: Path, clock: Clock) -> None:
    """A group is registered by its first run, and `latest` counts from there: it must not wait for an event."""
    settings = Settings(home=home, rules_folder=home.parent / "rules")
    watch = Watch(Runtime.open(settings, connections_from_environment({}), clock))

    assert sorted(watch.look()) == ["events_night", "events_orders"]
    watch.close()


def test_the_next_run_starts_while_the_batch_before_is_settled(watch: Watch, clock: Clock) -> None:
    """Once, for what the batch did not take; what it did take is not waiting any more."""
    publish(watch)
    watch.look()
    commit(watch, take(watch, "night"))
    batch = take(watch, "orders")
    settle(watch, batch)
    clock.later(2)
    assert watch.look() == []
    publish(watch)
    watch.look()
    clock.later(2)
    assert watch.run_starts["events_orders"].started_at == clock.now - timedelta(seconds=2)
    assert watch.runtime.ledger.commit_batch(
        batch.batch_id, "orders", watch.runtime.ledger.ranges(batch.batch_id), NOW, "000000"
    )

    assert "events_orders" not in watch.look()


def test_each_batch_gets_one_run(watch: Watch, clock: Clock) -> None:
    """Started once when an event comes, silent until its batch is delivered, started at once for what came
    meanwhile.
    """
    publish(watch)
    assert sorted(watch.look()) == ["events_night", "events_orders"]
    batch = take(watch, "orders")
    publish(watch)
    for _ in range(4):
        clock.later(2)
        assert "events_orders" not in watch.look()
    commit(watch, batch)
    clock.later(1)

    assert "events_orders" in watch.look()
    assert watch.look() == []


def test_a_lost_start_is_repeated(watch: Watch, clock: Clock) -> None:
    """A start while the DAG is paused is lost; 15 s later comes another."""
    publish(watch)
    first = sorted(watch.look())
    clock.later(14.9)
    assert watch.look() == []
    clock.later(0.1)

    assert sorted(watch.look()) == first


def seconds_of_run_starts(watch: Watch, clock: Clock, seconds: int) -> list[int]:
    """Return at which seconds from now on runner `orders` gets a run, with one look a second."""
    at = []
    for second in range(1, seconds + 1):
        clock.later(1)
        if "events_orders" in watch.look():
            at.append(second)
    return at


def test_runs_that_fail_before_taking_events_start_at_growing_intervals(watch: Watch, clock: Clock) -> None:
    """A missing connection fails `listen`; events that come meanwhile start none sooner; a batch that is taken does."""
    publish(watch)
    assert "events_orders" in watch.look()
    assert seconds_of_run_starts(watch, clock, 110) == [15, 45, 105]
    publish(watch)
    assert seconds_of_run_starts(watch, clock, 120) == [115]
    batch = take(watch, "orders")
    publish(watch)
    assert seconds_of_run_starts(watch, clock, 60) == [10, 25, 55]  # 15 s after the last start, as the batch is new
    commit(watch, batch)

    assert seconds_of_run_starts(watch, clock, 30) == [10, 25]


def test_runs_that_fail_within_a_batch_start_at_growing_intervals(watch: Watch, clock: Clock) -> None:
    """A batch that no run moves on, and nothing else waits: a minute, two, four, up to ten."""
    publish(watch)
    watch.look()
    take(watch, "orders")

    assert seconds_of_run_starts(watch, clock, 1_200) == [60, 120, 240, 480, 960]


def test_a_stopped_ingestion_gets_a_run_every_15_s(watch: Watch, clock: Clock) -> None:
    """Only a run finds out that there is room again."""
    assert watch.runtime.ledger.stop_ingestion("the disk is full", "disk")
    publish(watch)
    watch.look()

    assert seconds_of_run_starts(watch, clock, 60) == [15, 30, 45, 60]


def test_an_unpaused_dag_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """However often its start was lost before: Airflow starts the trigger of a DAG again when it is unpaused."""

    async def no_looks() -> AsyncIterator[list[str]]:
        for subjects in ():
            yield subjects

    async def begin() -> list[object]:
        return [event async for event in Watcher("events_orders").filter_shared_stream(no_looks())]

    publish(watch)
    look(watch)
    assert seconds_of_run_starts(watch, clock, 300) == [15, 45, 105, 225]
    assert asyncio.run(begin()) == []

    assert "events_orders" in look(watch)
    assert seconds_of_run_starts(watch, clock, 60) == [30]


def test_a_new_rule_file_is_seen(watch: Watch, clock: Clock) -> None:
    """A runner that is added to the files gets a run within two seconds, without a restart."""
    watch.look()
    rule = "rules: {x: {bus: orders, runner: extra, pattern: {}, targets: {log: {type: file, path: /tmp/never.jsonl}}}}"
    (watch.runtime.settings.rules_folder / "extra.yaml").write_text(rule)
    clock.later(2)

    assert watch.look() == ["events_extra"]


def test_retries_get_a_run_when_they_are_due(watch: Watch, clock: Clock) -> None:
    """Pending deliveries start a run when due, not before, and not again while a batch has them."""
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch = watch.runtime.ledger.batches(runner="orders")[0]
    row = PendingDeliveries(
        batch.batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW + timedelta(seconds=5), (("f", "0"),), 1, 9
    )
    watch.runtime.ledger.add_pending([row])
    assert watch.look() == []
    clock.later(5)
    assert watch.look() == ["due_deliveries"]
    (pending,) = watch.runtime.ledger.pending()
    retry = replace(batch, batch_id="retry", kind="retry", state="routed", deadline_at=clock() + timedelta(seconds=60))
    assert pending.pending_id is not None
    assert watch.runtime.ledger.plan_taken(retry, [], [pending.pending_id])
    clock.later(20)

    assert watch.look() == []


def test_the_next_due_delivery_gets_a_run_even_if_the_last_run_took_nothing(watch: Watch, clock: Clock) -> None:
    """Once nothing is due any more its start counts as responded to: the next one does not wait for 15 s."""
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch_id = watch.runtime.ledger.batches(runner="orders")[0].batch_id
    first = PendingDeliveries(batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW, (("f", "0"),), 1, 9)
    watch.runtime.ledger.add_pending([first])
    assert watch.look() == ["due_deliveries"]
    watch.runtime.ledger.hold_pending("big", "log", "rule disabled")
    clock.later(2)
    assert watch.look() == []
    watch.runtime.ledger.add_pending([replace(first, chunk_id=1)])
    clock.later(2)

    assert watch.look() == ["due_deliveries"]


def test_a_reopened_pool_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """Airflow is asked only while deliveries are on hold for a closed pool; one that is silent holds up no start."""
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch_id = watch.runtime.ledger.batches(runner="orders")[0].batch_id
    watch.runtime.ledger.add_pending(
        [PendingDeliveries(batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW, (("f", "0"),), 1, 9)]
    )
    watch.runtime.ledger.hold_pending("big", "log", "pool closed")
    with serving() as airflow:
        watch.runtime = watch._pools.runtime = replace(watch.runtime, connections=lambda _: airflow.connection())
        airflow.add("eventbridge.rule.big", 0)
        assert watch.look() == []
        asked = len(airflow.requests)
        clock.later(2)
        assert watch.look() == []
        assert len(airflow.requests) > asked > 0
        airflow.pools["eventbridge.rule.big"] |= {"slots": 2, "open_slots": 2}
        clock.later(2)
        assert watch.look() == ["due_deliveries"]

    clock.later(20)
    watch.look()  # the server has ended
    publish(watch)
    assert sorted(watch.look()) == ["events_night", "events_orders"]


def test_a_bus_that_does_not_respond_delays_no_other(watch: Watch, home: Path, clock: Clock) -> None:
    """Its runner is left to the time schedule; the others get a run."""
    (home.parent / "rules" / "down.yaml").write_text(
        "buses: {down: {source: {type: kafka, connection: nowhere, topics: [a]}}}\n"
        "rules: {down: {bus: down, pattern: {}, targets: {t: {type: file, path: /tmp/never.jsonl}}}}\n"
    )
    publish(watch)
    clock.later(3)

    assert set(watch.look()) == {runner_subject("orders"), runner_subject("night")}


class KeepsItsError:
    """A bus whose client, once it met an error, says nothing else until it is closed."""

    def __init__(self, below: LogSource, brokers: dict[str, bool]) -> None:
        self._below = below
        self._brokers = brokers
        self._met = False
        self.is_closed = False

    def ends(self) -> Mapping[Partition, int]:
        """Return the ends, unless the client met an error, now or before."""
        self._met = self._met or not self._brokers["up"]
        if self._met:
            raise BusError("the handshake failed")
        return self._below.ends()

    def earliest(self, partition: Partition) -> int:
        """Return where a partition begins."""
        return self._below.earliest(partition)

    def close(self) -> None:
        """Let go of the bus."""
        self.is_closed = True
        self._below.close()


def test_a_bus_that_failed_is_reopened(watch: Watch, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may keep to an error for good; after the silence a new one asks."""
    brokers = {"up": True}
    opened: list[KeepsItsError] = []
    open_source = watch.runtime.open_source

    def open_stubborn(_runtime: Runtime, of: Bus) -> KeepsItsError:
        opened.append(KeepsItsError(open_source(of), brokers))
        return opened[-1]

    monkeypatch.setattr(Runtime, "open_source", open_stubborn)
    assert watch.look() == []
    publish(watch)
    brokers["up"] = False
    clock.later(2)
    assert watch.look() == []
    brokers["up"] = True
    clock.later(31)

    assert sorted(watch.look()) == ["events_night", "events_orders"]
    assert [each.is_closed for each in opened] == [True, False]
