"""When the watcher starts a run: the pure decision, and polls of a real ledger and a real bus."""

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

from eventbridge.airflow.names import runner_subject
from eventbridge.airflow.run_start import RunStart, SubjectState, needs_start, next_start
from eventbridge.airflow.watch import Watch
from eventbridge.airflow.watcher import Watcher, check
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import BusError
from eventbridge.ledger.airflow import last_check
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.model.batch import Batch, Range
from eventbridge.model.partition import Partition
from eventbridge.model.pending import PendingDeliveries
from eventbridge.rules.model import Bus
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.protocol import LogSource

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float, mark: object = "old") -> RunStart:
    """Return a start of a run some seconds ago."""
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
        "a batch is in progress",
        "handled",
        "at most once a second",
        "not handled yet",
        "its batch is not delivered",
        "lost start",
        "dead run",
        "nothing waits any more",
        "beside an active run",
        "too soon beside an active run",
        "beside an active run after 5 s",
        "not handled yet, beside an active run",
        "after the active run",
        "unfinished for less than a minute",
        "unfinished for a minute",
    ],
)
def test_a_run_starts_when_something_waits_and_the_last_batch_is_delivered(
    seen: SubjectState, last: RunStart | None, expected: bool
) -> None:
    """Level-triggered, at most once a second, and repeated after 15 s without an effect."""
    assert needs_start(seen, last, NOW) is expected


def started_at(seen: SubjectState, seconds: int) -> list[int]:
    """Return the seconds at which a subject in a constant state gets a run, with one poll per second."""
    last: RunStart | None = None
    at = []
    for second in range(seconds):
        now = NOW + timedelta(seconds=second)
        if needs_start(seen, last, now):
            last = next_start(seen, last, now)
            at.append(second)
    return at


def test_a_start_whose_runs_change_nothing_is_repeated_at_growing_intervals() -> None:
    """15 s, doubling each time up to ten minutes: a missing connection causes 8 failed runs in an hour, not 240."""
    assert started_at(SubjectState(waiting=True, busy=False, mark="m", progress="p"), 3_600) == [
        *(0, 15, 45, 105, 225, 465, 945),
        *(1_545, 2_145, 2_745, 3_345),
    ]


def test_a_start_is_repeated_every_15_s_if_runs_without_work_are_useful() -> None:
    """For example a run that checks for free disk space."""
    assert started_at(SubjectState(waiting=True, busy=False, mark="m"), 61) == [0, 15, 30, 45, 60]


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "unfinished"])
def test_progress_of_a_run_resets_the_interval(waiting: bool) -> None:
    """Any progress since the last start resets the doubling."""
    before = RunStart(NOW, "m", progress="planned", repeats=6)
    seen = SubjectState(waiting=waiting, busy=True, mark="m", unfinished=True, progress="routed")
    first = timedelta(seconds=15 if waiting else 60)

    assert not needs_start(seen, before, NOW + first - timedelta(seconds=1))
    assert needs_start(seen, before, NOW + first)
    assert next_start(seen, before, NOW + first).repeats == 0
    unmoved = replace(seen, progress="planned")
    assert not needs_start(unmoved, before, NOW + timedelta(seconds=599))
    assert needs_start(unmoved, before, NOW + timedelta(seconds=600))


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that a test advances."""
    return Clock()


@pytest.fixture
def watch(home: Path, clock: Clock) -> Iterator[Watch]:
    """Open a watch over a real ledger and bus; runner `night` is registered and has no work."""
    settings = Settings(home=home, rules_folder=home.parent / "rules")
    opened = Watch(open_runtime(settings, connections_from_environment({}), clock))
    with bus(opened) as orders:
        for runner in ("orders", "night"):
            opened.runtime.ledger.offsets.register(runner, "orders", dict.fromkeys(orders.partitions(), 0))
    yield opened
    opened.close()


def bus(watch: Watch) -> EmbeddedBus:
    """Open the bus for publishing."""
    return EmbeddedBus(watch.runtime.settings.bus_folder, "orders", clock=watch.runtime.clock)


def publish(watch: Watch, count: int = 1) -> None:
    """Publish events on the bus."""
    with bus(watch) as orders:
        orders.publish([(b"{}", "key")] * count)


def take(watch: Watch, runner: str) -> Batch:
    """Plan a batch of all events that wait for a runner."""
    batch = Batch(f"{runner}-{watch.runtime.clock():%S%f}", "normal", runner, "orders", "planned", "cafe", NOW)
    committed = watch.runtime.ledger.offsets.committed(runner)
    with bus(watch) as orders:
        ranges = [Range(partition, committed[partition], end) for partition, end in orders.ends().items()]
    assert watch.runtime.ledger.batches.plan(batch, ranges)
    return batch


def settle(watch: Watch, batch: Batch) -> None:
    """Move a planned batch to the state after its pushes."""
    ledger = watch.runtime.ledger
    assert ledger.batches.move(batch.batch_id, "planned", "buffered")
    assert ledger.chunks.publish(batch.batch_id, NOW + timedelta(days=1), [])
    assert ledger.settlement.begin(batch.batch_id)


def commit(watch: Watch, batch: Batch) -> None:
    """Move a planned batch through all states."""
    ledger = watch.runtime.ledger
    settle(watch, batch)
    assert ledger.settlement.commit(batch.batch_id, batch.runner, ledger.batches.ranges(batch.batch_id), NOW, "000000")


def test_the_fallback_starts_what_waits_or_is_unfinished(watch: Watch, clock: Clock) -> None:
    """While the watcher polls, it starts runs only for waiting or unfinished work, regardless of the watcher's
    starts.
    """
    watch.check()
    assert watch.subjects_to_start() == []

    publish(watch)
    watch.check()
    assert watch.subjects_to_start() == ["events_night", "events_orders"]
    commit(watch, take(watch, "night"))
    take(watch, "orders")
    assert "events_orders" in watch.subjects_to_start()


def test_the_fallback_starts_every_run_while_the_watcher_does_not_poll(watch: Watch, clock: Clock) -> None:
    """Before the watcher's first poll, and a minute after its last one."""
    every = ["due_deliveries", "events_night", "events_orders"]
    assert sorted(watch.subjects_to_start()) == every
    watch.check()
    assert watch.subjects_to_start() == []
    clock.later(60)
    assert sorted(watch.subjects_to_start()) == every


def test_no_run_starts_while_nothing_waits(watch: Watch, clock: Clock) -> None:
    """An idle bus starts no runs."""
    for _ in range(3):
        clock.later(60)
        assert watch.check() == []


def test_a_batch_whose_run_died_gets_a_run_each_minute(watch: Watch, clock: Clock) -> None:
    """It gets one even if nothing else waits, as the fallback runs only every ten minutes."""
    publish(watch)
    watch.check()
    done = take(watch, "night")
    commit(watch, done)
    watch.runtime.ledger.settlement.mark_bus_committed(done.batch_id)
    take(watch, "orders")
    clock.later(59)
    assert watch.check() == []
    clock.later(1)

    assert watch.check() == ["events_orders"]
    assert watch.check() == []


def test_a_streaming_task_that_ends_soon_gets_a_run_until_it_has_a_standby(watch: Watch, clock: Clock) -> None:
    """Otherwise the streaming task takes new events, and no run starts."""
    ledger = watch.runtime.ledger
    ledger.streaming.acquire_lease("orders", "one", NOW + timedelta(seconds=60))
    publish(watch)
    assert watch.check() == ["events_night"]
    ledger.streaming.request_standby("orders", "one")
    assert watch.check() == ["events_orders"]
    ledger.streaming.register_standby("orders", "two", NOW + timedelta(seconds=20))
    clock.later(16)
    assert "events_orders" not in watch.check()
    clock.later(16)  # the standby's lease has expired

    assert "events_orders" in watch.check()


def test_a_dead_streaming_task_gets_a_run_when_its_lease_expires(watch: Watch, clock: Clock) -> None:
    """Its batch is open, and a run started just before: a second run takes it over."""
    ledger = watch.runtime.ledger
    publish(watch)
    assert "events_orders" in watch.check()
    ledger.streaming.acquire_lease("orders", "one", NOW + timedelta(seconds=6))
    with bus(watch) as orders:
        ranges = [Range(partition, 0, 0) for partition in orders.partitions()]
    assert ledger.batches.plan(Batch("batch", "normal", "orders", "orders", "open", "cafe", NOW), ranges)
    ledger.streaming.record("batch", {ranges[0].partition: 1}, None)
    publish(watch)
    clock.later(5)
    assert "events_orders" not in watch.check()
    clock.later(2)

    assert "events_orders" in watch.check()


def test_a_streaming_task_whose_process_has_ended_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """This applies to processes of the same host; for other hosts the lease must expire."""
    ledger = watch.runtime.ledger
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    publish(watch)
    for host, gets_run in (("another.example", False), (socket.gethostname(), True)):
        ledger.streaming.acquire_lease("orders", f"{host}:{gone.pid}:1", NOW + timedelta(seconds=60))
        assert ("events_orders" in watch.check()) == gets_run
        ledger.streaming.release_lease("orders", f"{host}:{gone.pid}:1")


def test_changed_rules_get_a_run_without_an_event(watch: Watch, clock: Clock) -> None:
    """One run, within a minute."""
    watch.check()
    rule = "rules: {x: {bus: orders, runner: night, pattern: {}, targets: {log: {type: file, path: /tmp/never.jsonl}}}}"
    (watch.runtime.settings.rules_folder / "extra.yaml").write_text(rule)
    clock.later(3)
    assert watch.check() == []
    clock.later(60)

    assert sorted(watch.check()) == ["events_night", "events_orders"]
    clock.later(60)
    assert watch.check() == []


def checked_at(watch: Watch) -> datetime | None:
    """Return the watcher's last poll in the ledger."""
    return last_check(engine_of(watch.runtime.settings.ledger_url), 5)


def test_the_watcher_records_its_polls_in_the_ledger(watch: Watch, clock: Clock) -> None:
    """A poll is recorded every 20 s, but not while a bus does not respond, as the fallback starts its runners."""
    watch.check()
    first = checked_at(watch)
    assert first is not None
    clock.later(19)
    watch.check()
    assert checked_at(watch) == first
    clock.later(1)
    watch.check()
    second = checked_at(watch)
    assert second is not None
    assert second > first
    down = "buses: {down: {source: {type: kafka, connection: nowhere, topics: [a]}}}\n"
    rule = "rules: {down: {bus: down, pattern: {}, targets: {t: {type: file, path: /tmp/never.jsonl}}}}\n"
    (watch.runtime.settings.rules_folder / "down.yaml").write_text(down + rule)
    clock.later(20)
    watch.check()

    assert checked_at(watch) == second


def test_a_runner_that_never_ran_gets_a_run(home: Path, clock: Clock) -> None:
    """Its first run registers the group, from which `latest` counts, so it must not wait for an event."""
    settings = Settings(home=home, rules_folder=home.parent / "rules")
    watch = Watch(open_runtime(settings, connections_from_environment({}), clock))

    assert sorted(watch.check()) == ["events_night", "events_orders"]
    watch.close()


def test_the_next_run_starts_while_the_batch_before_is_settled(watch: Watch, clock: Clock) -> None:
    """It starts once, for events that the batch did not take."""
    publish(watch)
    watch.check()
    commit(watch, take(watch, "night"))
    batch = take(watch, "orders")
    settle(watch, batch)
    clock.later(2)
    assert watch.check() == []
    publish(watch)
    watch.check()
    clock.later(2)
    assert watch.run_starts["events_orders"].started_at == clock.now - timedelta(seconds=2)
    assert watch.runtime.ledger.settlement.commit(
        batch.batch_id, "orders", watch.runtime.ledger.batches.ranges(batch.batch_id), NOW, "000000"
    )

    assert "events_orders" not in watch.check()


def test_each_batch_gets_one_run(watch: Watch, clock: Clock) -> None:
    """A run starts when an event arrives, and the next one after its batch is delivered, for later events."""
    publish(watch)
    assert sorted(watch.check()) == ["events_night", "events_orders"]
    batch = take(watch, "orders")
    publish(watch)
    for _ in range(4):
        clock.later(2)
        assert "events_orders" not in watch.check()
    commit(watch, batch)
    clock.later(1)

    assert "events_orders" in watch.check()
    assert watch.check() == []


def test_a_lost_start_is_repeated(watch: Watch, clock: Clock) -> None:
    """A start while the DAG is paused is lost, and repeated after 15 s."""
    publish(watch)
    first = sorted(watch.check())
    clock.later(14.9)
    assert watch.check() == []
    clock.later(0.1)

    assert sorted(watch.check()) == first


def seconds_of_run_starts(watch: Watch, clock: Clock, seconds: int) -> list[int]:
    """Return the seconds from now at which runner `orders` gets a run, with one poll per second."""
    at = []
    for second in range(1, seconds + 1):
        clock.later(1)
        if "events_orders" in watch.check():
            at.append(second)
    return at


def test_runs_that_fail_before_taking_events_start_at_growing_intervals(watch: Watch, clock: Clock) -> None:
    """A missing connection fails `listen`. New events do not shorten the interval; a planned batch does."""
    publish(watch)
    assert "events_orders" in watch.check()
    assert seconds_of_run_starts(watch, clock, 110) == [15, 45, 105]
    publish(watch)
    assert seconds_of_run_starts(watch, clock, 120) == [115]
    batch = take(watch, "orders")
    publish(watch)
    assert seconds_of_run_starts(watch, clock, 60) == [10, 25, 55]  # 15 s after the last start, as the batch is new
    commit(watch, batch)

    assert seconds_of_run_starts(watch, clock, 30) == [10, 25]


def test_runs_that_fail_within_a_batch_start_at_growing_intervals(watch: Watch, clock: Clock) -> None:
    """If only an unfinished batch exists, the intervals are one, two, four and up to ten minutes."""
    publish(watch)
    watch.check()
    take(watch, "orders")

    assert seconds_of_run_starts(watch, clock, 1_200) == [60, 120, 240, 480, 960]


def test_a_stopped_ingestion_gets_a_run_every_15_s(watch: Watch, clock: Clock) -> None:
    """Only a run notices that there is free space again."""
    assert watch.runtime.ledger.ingestion.stop("the disk is full", "disk")
    publish(watch)
    watch.check()

    assert seconds_of_run_starts(watch, clock, 60) == [15, 30, 45, 60]


def test_an_unpaused_dag_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """Even after many lost starts: Airflow restarts the trigger of a DAG when it is unpaused."""

    async def no_looks() -> AsyncIterator[list[str]]:
        for subjects in ():
            yield subjects

    async def begin() -> list[object]:
        return [event async for event in Watcher("events_orders").filter_shared_stream(no_looks())]

    publish(watch)
    check(watch)
    assert seconds_of_run_starts(watch, clock, 300) == [15, 45, 105, 225]
    assert asyncio.run(begin()) == []

    assert "events_orders" in check(watch)
    assert seconds_of_run_starts(watch, clock, 60) == [30]


def test_a_new_rule_file_is_seen(watch: Watch, clock: Clock) -> None:
    """A new runner in the rule files gets a run within two seconds, without a restart."""
    watch.check()
    rule = "rules: {x: {bus: orders, runner: extra, pattern: {}, targets: {log: {type: file, path: /tmp/never.jsonl}}}}"
    (watch.runtime.settings.rules_folder / "extra.yaml").write_text(rule)
    clock.later(2)

    assert watch.check() == ["events_extra"]


def test_retries_get_a_run_when_they_are_due(watch: Watch, clock: Clock) -> None:
    """Pending deliveries start a run when they are due, and not again while a batch has them."""
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch = watch.runtime.ledger.batches.find(runner="orders")[0]
    row = PendingDeliveries(
        batch.batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW + timedelta(seconds=5), (("f", "0"),), 1, 9
    )
    watch.runtime.ledger.pending.add([row])
    assert watch.check() == []
    clock.later(5)
    assert watch.check() == ["due_deliveries"]
    (pending,) = watch.runtime.ledger.pending.find()
    retry = replace(batch, batch_id="retry", kind="retry", state="routed", deadline_at=clock() + timedelta(seconds=60))
    assert pending.pending_id is not None
    assert watch.runtime.ledger.pending.take(retry, [], [pending.pending_id])
    clock.later(20)

    assert watch.check() == []


def test_the_next_due_delivery_gets_a_run_even_if_the_last_run_took_nothing(watch: Watch, clock: Clock) -> None:
    """Once nothing is due, the start counts as handled, so the next one does not wait for 15 s."""
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch_id = watch.runtime.ledger.batches.find(runner="orders")[0].batch_id
    first = PendingDeliveries(batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW, (("f", "0"),), 1, 9)
    watch.runtime.ledger.pending.add([first])
    assert watch.check() == ["due_deliveries"]
    watch.runtime.ledger.pending.hold("big", "log", "rule disabled")
    clock.later(2)
    assert watch.check() == []
    watch.runtime.ledger.pending.add([replace(first, chunk_id=1)])
    clock.later(2)

    assert watch.check() == ["due_deliveries"]


def test_a_reopened_pool_gets_a_run_at_once(watch: Watch, clock: Clock) -> None:
    """Airflow is asked only while deliveries are on hold for a closed pool; if it does not respond, no start is
    delayed.
    """
    publish(watch)
    for runner in ("orders", "night"):
        commit(watch, take(watch, runner))
    batch_id = watch.runtime.ledger.batches.find(runner="orders")[0].batch_id
    watch.runtime.ledger.pending.add(
        [PendingDeliveries(batch_id, 0, "orders", "big", "log", "retry_scheduled", 1, NOW, (("f", "0"),), 1, 9)]
    )
    watch.runtime.ledger.pending.hold("big", "log", "pool closed")
    with serving() as airflow:
        watch.runtime = watch._pools.runtime = replace(watch.runtime, connections=lambda _: airflow.connection())
        airflow.add("eventbridge.rule.big", 0)
        assert watch.check() == []
        asked = len(airflow.requests)
        clock.later(2)
        assert watch.check() == []
        assert len(airflow.requests) > asked > 0
        airflow.pools["eventbridge.rule.big"] |= {"slots": 2, "open_slots": 2}
        clock.later(2)
        assert watch.check() == ["due_deliveries"]

    clock.later(20)
    watch.check()  # the server has ended
    publish(watch)
    assert sorted(watch.check()) == ["events_night", "events_orders"]


def test_a_bus_that_does_not_respond_delays_no_other(watch: Watch, home: Path, clock: Clock) -> None:
    """The fallback schedule starts its runner; the others get a run."""
    (home.parent / "rules" / "down.yaml").write_text(
        "buses: {down: {source: {type: kafka, connection: nowhere, topics: [a]}}}\n"
        "rules: {down: {bus: down, pattern: {}, targets: {t: {type: file, path: /tmp/never.jsonl}}}}\n"
    )
    publish(watch)
    clock.later(3)

    assert set(watch.check()) == {runner_subject("orders"), runner_subject("night")}


class RepeatsItsError:
    """A bus whose client repeats its first error until it is closed."""

    def __init__(self, below: LogSource, brokers: dict[str, bool]) -> None:
        self._below = below
        self._brokers = brokers
        self._met = False
        self.is_closed = False

    def ends(self) -> Mapping[Partition, int]:
        """Return the ends, unless the client had an error, now or before."""
        self._met = self._met or not self._brokers["up"]
        if self._met:
            raise BusError("the handshake failed")
        return self._below.ends()

    def earliest(self, partition: Partition) -> int:
        """Return the first offset of a partition."""
        return self._below.earliest(partition)

    def close(self) -> None:
        """Close the bus."""
        self.is_closed = True
        self._below.close()


def test_a_bus_that_failed_is_reopened(watch: Watch, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may repeat an error forever, so a new one is opened after 30 s."""
    brokers = {"up": True}
    opened: list[RepeatsItsError] = []
    open_source = watch.runtime.open_source

    def open_stubborn(_runtime: Runtime, of: Bus) -> RepeatsItsError:
        opened.append(RepeatsItsError(open_source(of), brokers))
        return opened[-1]

    monkeypatch.setattr(Runtime, "open_source", open_stubborn)
    assert watch.check() == []
    publish(watch)
    brokers["up"] = False
    clock.later(2)
    assert watch.check() == []
    brokers["up"] = True
    clock.later(31)

    assert sorted(watch.check()) == ["events_night", "events_orders"]
    assert [each.is_closed for each in opened] == [True, False]
