"""What every queue source must do: each test runs against every one there is. A new one is one more line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from eventbridge import fault_points
from eventbridge.sources.messages import RECEIVED
from eventbridge.sources.protocol import QueueSource
from eventbridge.testing.sources import InMemoryQueue

INVISIBLE = timedelta(seconds=30)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


QUEUES: dict[str, Callable[[Clock], InMemoryQueue]] = {
    "memory": lambda clock: InMemoryQueue(clock=clock, invisible=INVISIBLE),
}


@pytest.fixture
def clock() -> Clock:
    """Return the clock of the queue under test."""
    return Clock()


@pytest.fixture(params=QUEUES)
def queue(request: pytest.FixtureRequest, clock: Clock) -> Iterator[InMemoryQueue]:
    """Yield an empty queue of each kind."""
    queue = QUEUES[request.param](clock)
    yield queue
    fault_points.install(None)
    queue.close()


def received(queue: InMemoryQueue, at_most: int = 10) -> list[dict[str, Any]]:
    """Receive and return the rows of the block, whose columns are those of `RECEIVED`."""
    block = queue.receive(at_most)
    assert block.schema.equals(RECEIVED)
    return cast("list[dict[str, Any]]", block.to_pylist())


def bodies(queue: InMemoryQueue, at_most: int = 10) -> list[bytes]:
    """Receive and return the bodies."""
    return [row["body"] for row in received(queue, at_most)]


def test_it_is_a_queue_source(queue: InMemoryQueue) -> None:
    """Type checkers see the protocol met; its kind says that it is acknowledged."""
    source: QueueSource = queue

    assert source.kind == "queue"


def test_an_empty_queue_gives_nothing(queue: InMemoryQueue) -> None:
    """Nothing there is a response, not an error."""
    assert received(queue) == []


def test_a_sent_message_is_received(queue: InMemoryQueue, clock: Clock) -> None:
    """A message comes with its bytes, its id and its time."""
    ids = queue.publish([b"1", b"\x00\xff"])
    rows = received(queue)

    assert [(row["body"], row["message_id"]) for row in rows] == [(b"1", ids[0]), (b"\x00\xff", ids[1])]
    assert {row["published_at"] for row in rows} == {clock.now}
    assert len({row["receipt"] for row in rows}) == 2


def test_no_more_than_asked_for(queue: InMemoryQueue) -> None:
    """`at_most` is kept to, and what was not handed out comes with the next call."""
    queue.publish([b"1", b"2", b"3"])

    assert [bodies(queue, 2), bodies(queue, 2), bodies(queue, 2)] == [[b"1", b"2"], [b"3"], []]


def test_an_acknowledged_message_is_not_received_again(queue: InMemoryQueue, clock: Clock) -> None:
    """What is acknowledged never comes again; the rest comes again when its time has run out, and not before."""
    queue.publish([b"1", b"2"])
    first = received(queue)
    queue.acknowledge([first[0]["receipt"]])
    clock.now += INVISIBLE - timedelta(microseconds=1)

    assert bodies(queue) == []
    clock.now += timedelta(microseconds=1)
    (again,) = received(queue)
    assert again | {"receipt": ""} == first[1] | {"receipt": ""}
    assert again["receipt"] != first[1]["receipt"]


def test_a_receipt_that_ran_out_is_ignored(queue: InMemoryQueue, clock: Clock) -> None:
    """A late acknowledgement removes nothing, whether the message was handed out again or not."""
    queue.publish([b"1"])
    late = received(queue, 1)[0]["receipt"]
    clock.now += INVISIBLE
    queue.acknowledge([late])
    again = bodies(queue)
    queue.acknowledge([late])

    assert again == [b"1"]
    clock.now += INVISIBLE
    assert bodies(queue) == [b"1"]


def test_acknowledging_again_is_harmless(queue: InMemoryQueue) -> None:
    """The same receipt twice, an unknown one, none at all: no error."""
    queue.publish([b"1"])
    receipt = received(queue, 1)[0]["receipt"]
    queue.acknowledge([receipt])
    queue.acknowledge([receipt, "unknown"])
    queue.acknowledge([])

    assert bodies(queue) == []


def test_a_message_that_is_held_longer_is_extended(queue: InMemoryQueue, clock: Clock) -> None:
    """Its time begins again; what `extend` returns acknowledges it, and what ran out is returned as it is."""
    queue.publish([b"1"])
    first = received(queue, 1)[0]["receipt"]
    clock.now += INVISIBLE / 2
    (second,) = queue.extend([first])
    clock.now += INVISIBLE - timedelta(microseconds=1)
    assert bodies(queue) == []
    (third,) = queue.extend([second])
    queue.acknowledge([third])
    clock.now += INVISIBLE

    assert bodies(queue) == []
    assert queue.extend([third]) == [third]
    assert queue.waiting() == 0


def test_waiting_messages_are_counted(queue: InMemoryQueue) -> None:
    """A message counts until it is acknowledged, whether it is handed out or not."""
    queue.publish([b"1", b"2"])
    row = received(queue, 1)[0]
    assert queue.waiting() == 2
    queue.acknowledge([row["receipt"]])

    assert queue.waiting() == 1


@pytest.mark.parametrize("point", ["bus.receive", "bus.acknowledge", "bus.acknowledge.done"])
def test_a_test_can_stop_every_call(queue: InMemoryQueue, clock: Clock, point: str) -> None:
    """Before `.done` nothing has happened, after it all has."""
    queue.publish([b"1"])
    receipt = received(queue, 1)[0]["receipt"]

    def stop(reached: str) -> None:
        if reached == point:
            raise RuntimeError(point)

    fault_points.install(stop)
    with pytest.raises(RuntimeError, match=point):  # noqa: PT012 - whichever of the two calls reaches the point
        queue.acknowledge([receipt])
        queue.receive(1)
    fault_points.install(None)
    clock.now += INVISIBLE

    assert bodies(queue) == ([b"1"] if point == "bus.acknowledge" else [])
