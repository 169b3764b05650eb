"""Publishes events from Airflow's processes in a thread of its own, so that the caller never waits.

The events of a process that is killed are lost. `put` drops events while too many wait; the log and an event on the bus
report how many.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol
from weakref import WeakSet

# Imported first: its handler must run after the one below before a fork, because the thread may use the ledger while
# it holds `no_fork`.
import eventbridge.ledger.database  # noqa: F401
from eventbridge.airflow.state_events import Event

log = logging.getLogger(__name__)

#: How many events may wait. An event takes about 2 KiB of memory.
WAITING_LIMIT = 10_000

#: How long the end of a process waits for its events. A task has reported its result before.
CLOSE_SECONDS = 2.0

#: How long the thread collects events that come together, such as those of one loop of the scheduler. A publication
#: takes a millisecond of CPU time, during which Airflow's own threads wait for the interpreter's lock.
_COLLECT_SECONDS = 0.1

#: The bus is closed if no event comes for this time, because a task may run for hours.
_IDLE_SECONDS = 1.0

#: The maximum number of events that are published in one transaction.
_AT_ONCE = 500

#: The delay before the next try while the bus fails; it doubles up to the second value.
_PAUSE_SECONDS = (0.2, 30.0)

_REPORT_SECONDS = 60.0

#: Held while the bus, the ledger or Airflow's database is open and while modules are imported: a process that forks
#: meanwhile would give its child locks that nobody releases.
no_fork = threading.RLock()

_outboxes: WeakSet[Outbox] = WeakSet()


class EventPublisher(Protocol):
    """What publishes the events of an outbox."""

    def publish(self, events: Sequence[Event], ending: threading.Event) -> None:
        """Publish events; after an exception it is called again with them. `ending` is set when the process ends."""

    def close(self) -> None:
        """Close what `publish` has opened; the next call opens it again."""


class Outbox:
    """The events of this process that wait for publication, which happens in a thread.

    `report_dropped` returns the event about a number of dropped events.
    """

    def __init__(
        self,
        publisher: EventPublisher,
        report_dropped: Callable[[int], Event],
        limit: int = WAITING_LIMIT,
    ) -> None:
        self.publisher = publisher
        self._report_dropped = report_dropped
        self._limit = limit
        self.begin()
        _outboxes.add(self)

    def begin(self) -> None:
        """Start with no events and no thread, as a forked process must."""
        self._waiting: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._runs = False
        self.dropped = 0
        self._unreported = 0
        self._logged_at = -_REPORT_SECONDS

    def put(self, event: Event) -> None:
        """Add an event, or drop and count it if too many wait or the process ends."""
        with self._changed:
            if len(self._waiting) < self._limit and not self._closing.is_set():
                self._waiting.append(event)
            else:
                self._count_dropped(1)
            if not self._runs and not self._closing.is_set():
                self._runs = True
                # Thread.start() would wait until the system schedules the thread.
                _thread.start_new_thread(self._run, ())
                atexit.register(self.close)
            self._changed.notify_all()

    def drop(self, error: Exception) -> None:
        """Count an event that could not be built."""
        with self._changed:
            self._count_dropped(1)
            self._log(f"an event cannot be built: {type(error).__name__}: {error}")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the thread once all events are published, or a last try failed; drop and count events after `seconds`."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._runs, seconds)
            if self._waiting:
                self._count_dropped(len(self._waiting))
                self._waiting.clear()
                self._log("the process ends before they are published")
            self._unreported = 0

    def _count_dropped(self, count: int) -> None:
        self.dropped += count
        self._unreported += count

    def _has_work(self) -> bool:
        return bool(self._waiting or self._unreported)

    def _run(self) -> None:
        pause = _PAUSE_SECONDS[0]
        while self._has_work() or not self._closing.is_set():
            is_last = self._closing.is_set()
            try:
                self._wait_for_events()
                self._publish_waiting()
                pause = _PAUSE_SECONDS[0]
            except Exception as error:  # whatever it is, Airflow must not notice
                self._log(f"the bus takes no events: {error}")
                if is_last:
                    break
                self._closing.wait(pause)
                pause = min(2 * pause, _PAUSE_SECONDS[1])
        with self._changed:
            self._runs = False
            self._changed.notify_all()
        self.publisher.close()

    def _wait_for_events(self) -> None:
        def is_due() -> bool:
            return self._has_work() or self._closing.is_set()

        with self._changed:
            idle = not self._changed.wait_for(is_due, _IDLE_SECONDS)
        if idle:
            self.publisher.close()
            with self._changed:
                self._changed.wait_for(is_due)
        self._closing.wait(_COLLECT_SECONDS)

    def _publish_waiting(self) -> None:
        with self._changed:
            events = list(islice(self._waiting, _AT_ONCE))
            dropped = self._unreported
        if dropped:
            self._log("too many wait for the bus")
        self.publisher.publish([*events, self._report_dropped(dropped)] if dropped else events, self._closing)
        with self._changed:
            for _ in range(min(len(events), len(self._waiting))):
                self._waiting.popleft()
            self._unreported -= dropped
            self._changed.notify_all()

    def _log(self, problem: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _REPORT_SECONDS or self._closing.is_set():
            self._logged_at = now
            log.warning(
                "Changes in Airflow are not published: %s. Dropped by this process so far: %d", problem, self.dropped
            )


def _before_fork() -> None:
    no_fork.acquire()
    for each in _outboxes:
        each.publisher.close()


def _begin_again() -> None:
    for each in _outboxes:
        each.begin()
    no_fork.release()


os.register_at_fork(before=_before_fork, after_in_parent=no_fork.release, after_in_child=_begin_again)
