"""The outbox of an Airflow process: nothing waits for the bus, what does not fit is dropped and counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from eventbridge.airflow.outbox import Outbox, no_fork
from eventbridge.airflow.state_events import Event


class Bus:
    """A publisher that keeps the numbers of events. While `works` is not set, it hangs, and raises `error` if set."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.works = threading.Event()
        self.reached = threading.Event()
        self.error: Exception | None = None

    def publish(self, events: Sequence[Event], ending: threading.Event) -> None:
        """Keep the numbers of events."""
        error = self.error
        self.reached.set()
        if error is not None:
            raise error
        self.works.wait()
        self.numbers += [event["n"] for event in events]

    def close(self) -> None:
        """Do nothing."""


def an_outbox(bus: Bus, limit: int = 100) -> Outbox:
    """Return an outbox whose event about dropped events has their negative number."""
    return Outbox(bus, lambda count: {"n": -count}, limit)


def test_events_are_published_in_order_before_the_process_ends() -> None:
    """`close` waits for the thread, which publishes at once."""
    bus = Bus()
    bus.works.set()
    outbox = an_outbox(bus, 1_000)
    for number in range(700):
        outbox.put({"n": number})
    outbox.close(60)

    assert bus.numbers == list(range(700))
    assert outbox.dropped == 0


def test_nothing_waits_for_a_bus_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """What does not fit is dropped; the bus gets an event with its number, the log says it too."""
    bus = Bus()
    outbox = an_outbox(bus, limit=10)
    began = time.monotonic()
    for number in range(50):
        outbox.put({"n": number})
    took = time.monotonic() - began
    bus.works.set()
    outbox.close(60)

    assert took < 5
    assert bus.numbers[:10] == [*range(10)]
    assert sum(bus.numbers[10:]) == -40
    assert "Dropped by this process so far: 40" in caplog.text


def test_events_wait_for_a_bus_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """They are published once it takes events again, and the log has its error."""
    bus = Bus()
    bus.works.set()
    bus.error = OSError("no space left")
    outbox = an_outbox(bus)
    outbox.put({"n": 1})
    assert bus.reached.wait(60)
    bus.error = None
    outbox.close(60)

    assert bus.numbers == [1]
    assert "the bus takes no events: no space left" in caplog.text


def test_the_end_of_a_process_does_not_wait_for_a_bus_that_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """The thread tries once more; a wrong setting would delay the end of every task otherwise."""
    bus = Bus()
    bus.error = OSError("no space left")
    outbox = an_outbox(bus)
    outbox.put({"n": 1})
    began = time.monotonic()
    outbox.close(60)

    assert time.monotonic() - began < 30
    assert outbox.dropped == 1
    assert "no space left" in caplog.text


def test_the_end_of_a_process_waits_only_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Events that are not published by then are counted as dropped."""
    bus = Bus()
    outbox = an_outbox(bus)
    outbox.put({"n": 1})
    outbox.close(0.05)
    bus.works.set()

    assert outbox.dropped == 1
    assert "the process ends before they are published" in caplog.text


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own_and_none_of_the_events() -> None:
    """The parent publishes what it has; the child publishes what it puts."""
    bus = Bus()
    outbox = an_outbox(bus)
    outbox.put({"n": 1})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        bus.works.set()
        outbox.put({"n": 2})
        outbox.close(60)
        os.write(writing, repr(bus.numbers).encode())
        os._exit(0)
    os.waitpid(child, 0)
    bus.works.set()
    outbox.close(60)

    assert os.read(reading, 100) == b"[2]"
    assert bus.numbers == [1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_until_the_bus_is_closed() -> None:
    """A child would inherit the locks of a file that is open, and hold them until it ends."""
    states: list[Any] = []

    class OpenBus(Bus):
        def publish(self, events: Sequence[Event], ending: threading.Event) -> None:
            with no_fork:
                self.reached.set()
                states.append("open")
                self.works.wait()
                states.append("written")

        def close(self) -> None:
            states.append("closed")

    bus = OpenBus()
    outbox = an_outbox(bus)
    outbox.put({"n": 1})
    assert bus.reached.wait(60)
    threading.Timer(0.2, bus.works.set).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if states[:3] == ["open", "written", "closed"] else 1)

    assert os.waitpid(child, 0)[1] == 0
    outbox.close(60)
