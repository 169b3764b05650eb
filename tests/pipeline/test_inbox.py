"""The inbox makes queue messages durable in a log before it acknowledges them, even if a process dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from eventbridge import fault_points
from eventbridge.errors import OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.runtime.identity import claim_runner
from eventbridge.runtime.inbox import Inbox
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.testing.sources import InMemoryQueue
from eventbridge.upkeep.maintain import maintain

INVISIBLE = timedelta(seconds=30)
TOPIC = Partition("orders", "", 0)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def queue(clock: Any) -> InMemoryQueue:
    """An empty queue that uses the clock of the installation."""
    return InMemoryQueue(clock=clock, invisible=INVISIBLE)


@pytest.fixture
def inbox(runtime: Any, queue: InMemoryQueue) -> Callable[[], Inbox]:
    """Open the inbox as each process does."""
    return lambda: Inbox("shop", {"orders": queue}, runtime.ledger, runtime.store)


def bodies(inbox: Inbox) -> list[bytes]:
    """Return the bodies of all messages in the inbox."""
    return [
        row["body"] for block in inbox.read(TOPIC, inbox.earliest(TOPIC), inbox.end(TOPIC)) for row in block.to_pylist()
    ]


def test_ingested_messages_are_read_by_offset(inbox: Callable[[], Inbox], queue: InMemoryQueue) -> None:
    """Ingested messages are read in the order of arrival, between any two offsets, any number of times."""
    queue.publish([b"1", b"2"])
    assert inbox().ends() == {TOPIC: 2}
    assert inbox().take_in(10) == 2
    queue.publish([b"3", b"4", b"5"])
    assert inbox().take_in(2) == 2
    (block,) = inbox().read(TOPIC, 1, 2)

    assert bodies(inbox()) == [b"1", b"2", b"3", b"4"]
    assert (block["offset"].to_pylist(), block["body"].to_pylist()) == ([1], [b"2"])
    assert inbox().ends() == {TOPIC: 5}
    with pytest.raises(OffsetGapError, match="up to offset 4"):
        inbox().read(TOPIC, 0, 5)


def points_of(act: Callable[[], object]) -> int:
    """Return how many fault points an action reaches."""
    reached: list[str] = []
    fault_points.install(reached.append)
    act()
    fault_points.install(None)
    return len(reached)


def test_a_process_that_dies_anywhere_loses_and_doubles_nothing(
    inbox: Callable[[], Inbox], queue: InMemoryQueue, clock: Any
) -> None:
    """A process that is killed at any point of ingestion loses and repeats nothing once it runs again."""
    queue.publish([b"first"])
    points = points_of(lambda: inbox().take_in(10))
    assert points > 8
    sent = [b"first"]
    for deadly in range(points):
        sent += (new := [f"{deadly}-{number}".encode() for number in range(3)])
        queue.publish(new)
        left = iter(range(deadly, -1, -1))

        def die(_: str, left: Any = left) -> None:
            if next(left, 0) == 0:
                raise Killed

        fault_points.install(die)
        with pytest.raises(Killed):
            inbox().take_in(10)
        fault_points.install(None)
        clock.now += INVISIBLE
        inbox().take_in(10)
        assert queue.waiting() == 0

    assert sorted(bodies(inbox())) == sorted(sent)


def test_repeated_messages_are_counted_and_not_landed_twice(
    runtime: Any, inbox: Callable[[], Inbox], queue: InMemoryQueue, clock: Any
) -> None:
    """After a refused acknowledgement the messages come again, are recognised by their ids, and are acknowledged."""
    queue.publish([b"1", b"2"])
    queue.switches.fail("acknowledge")
    with pytest.raises(Exception, match="acknowledge"):
        inbox().take_in(10)
    clock.now += 100 * INVISIBLE
    queue.publish([b"3"])
    assert inbox().take_in(10) == 1

    assert bodies(inbox()) == [b"1", b"2", b"3"]
    assert queue.waiting() == 0
    assert [
        (file.end, file.again, file.acknowledged) for file in runtime.ledger.inbox.files("shop", "orders", 0, 9)
    ] == [
        (2, 0, False),
        (3, 2, True),
    ]


def test_a_process_that_stood_still_records_nothing_twice(
    inbox: Callable[[], Inbox], queue: InMemoryQueue, clock: Any
) -> None:
    """A process that stood still records only messages that another process has not recorded in the meantime."""
    queue.publish([b"1", b"2"])

    def stand_still(point: str) -> None:
        if point == "store.put":
            fault_points.install(None)
            clock.now += 100 * INVISIBLE
            assert inbox().take_in(1) == 1

    fault_points.install(stand_still)
    assert inbox().take_in(10) == 1

    assert sorted(bodies(inbox())) == [b"1", b"2"]


def test_a_slow_store_does_not_let_messages_come_again(
    runtime: Any, inbox: Callable[[], Inbox], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a file is written, the visibility timeout is extended, and the newest receipts acknowledge the messages."""
    queue = InMemoryQueue(clock=clock, invisible=timedelta(milliseconds=30))
    queue.publish([b"1"])
    extended: list[str] = []
    extend = queue.extend

    def noting(receipts: Any) -> list[str]:
        extended.extend(found := extend(receipts))
        return found

    monkeypatch.setattr(queue, "extend", noting)

    def slow(point: str) -> None:
        while point == "store.put" and len(extended) < 2:
            time.sleep(0.01)

    fault_points.install(slow)
    Inbox("shop", {"orders": queue}, runtime.ledger, runtime.store).take_in(1)

    assert queue.waiting() == 0
    assert len(set(extended)) == len(extended) >= 2


def test_messages_taken_by_every_runner_are_removed(
    runtime: Any, inbox: Callable[[], Inbox], queue: InMemoryQueue, clock: Any
) -> None:
    """Old files below the lowest offset are removed from ledger and store; offsets stay as they were."""
    for body in (b"1", b"2", b"3"):
        queue.publish([body])
        inbox().take_in(1)
    clock.now += timedelta(days=2)
    before = clock.now - timedelta(days=1)
    assert inbox().trim(before, {TOPIC: 2}) == 2
    assert inbox().trim(before, {TOPIC: 3}) == 0  # the newest file is kept, because it determines the next offset
    queue.publish([b"4"])
    inbox().take_in(1)

    assert (inbox().earliest(TOPIC), inbox().end(TOPIC)) == (2, 4)
    assert bodies(inbox()) == [b"3", b"4"]
    assert len(runtime.store.list("inbox/")) == 2


def test_maintain_removes_what_a_dead_process_left(
    site: Any,
    runtime: Any,
    inbox: Callable[[], Inbox],
    queue: InMemoryQueue,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unrecorded file is removed a day after its day; recorded and newer files stay."""
    queue.publish([b"1"])
    inbox().take_in(1)
    site.write_rules(
        "buses: {shop: {source: {type: embedded, topics: [orders]}}}\n"
        "rules: {all: {bus: shop, pattern: {}, targets: {log: {type: file, path: /tmp/never-written/all.jsonl}}}}\n"
    )
    claim_runner(runtime, "shop")
    runtime.ledger.offsets.register("shop", "shop", {TOPIC: 0})
    lost = [layout.inbox("shop", "orders", clock.now + timedelta(days=days), "lost") for days in (0, 1)]
    for path in lost:
        runtime.store.put(path, b"never recorded")
    clock.now += timedelta(days=1, hours=13)  # the day after next begins in less than a day
    monkeypatch.setattr(Runtime, "open_source", lambda _, bus: inbox())

    assert maintain(runtime).lost_files == 1
    assert [runtime.store.exists(path) for path in lost] == [False, True]
    assert bodies(inbox()) == [b"1"]
