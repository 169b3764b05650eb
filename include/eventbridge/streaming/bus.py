"""Keeps the bus of a streaming task open, and decides when to poll it.

A bus that announces messages is polled when it does, and any other bus at intervals.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from eventbridge.model.partition import Partition
from eventbridge.policy.streaming import UNANNOUNCED_SECONDS, poll_seconds
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import AnnouncingLog, FollowableLog, LogSource
from eventbridge.streaming.target_queues import TargetQueues


class StreamingBus:
    """Opens the bus that the batches read, and keeps it open from one batch to the next.

    Only one thread at a time may use it.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._source: LogSource | None = None
        self._opened: Bus | None = None
        self._followed: Mapping[Partition, int] | None = None

    def open(self, bus: Bus) -> LogSource:
        """Return the bus, which is opened if necessary."""
        if bus != self._opened:
            self.close()
        source = self._source = self._source or self._runtime.open_source(bus)
        self._opened = bus
        return source

    @contextmanager
    def reading(self, bus: Bus, ends: Mapping[Partition, int]) -> Iterator[LogSource]:
        """Yield the bus, which the body reads from `ends` and whose `ends` it advances.

        If the body raises an error, the bus is closed. The next call opens it again.
        """
        source = self.open(bus)
        try:
            if isinstance(source, FollowableLog) and self._followed != ends:
                source.follow(ends)
            yield source
        except BaseException:
            self.close()
            raise
        self._followed = dict(ends)

    def close(self) -> None:
        """Close the bus."""
        source, self._source = self._source, None
        self._opened = self._followed = None
        if source is not None:
            source.close()


#: After this many consecutive polls that found messages without an announcement, because another host wrote them, the
#: bus is polled at intervals.
_MAX_UNANNOUNCED: Final = 3


class BusPolls:
    """Decides when to poll the bus for one batch, and runs the batch's deliveries between the polls."""

    def __init__(self, source: LogSource, targets: TargetQueues) -> None:
        self._announcements = source.announcements() if isinstance(source, AnnouncingLog) else None
        self._targets = targets
        self._announced = self._waited = False
        self._unannounced = 0

    def begin(self) -> None:
        """Begin a poll. The bus announces messages that arrive from now on."""
        self._announced = self._announcements is not None and self._announcements.take_signal()

    def work_until_next(self, found: int, since: float, *, left: bool) -> None:
        """Run deliveries until the next poll is due.

        `found` is the number of events that the last poll found, and `left` is True if it left some unread. `since` is
        the number of seconds since a poll last found events.
        """
        if found:
            self._unannounced = self._unannounced + 1 if self._waited and not self._announced else 0
        self._waited = False
        if self._announcements is None or self._unannounced >= _MAX_UNANNOUNCED or self._targets.has_waiting:
            self._targets.engine.work_for(poll_seconds(found, since))
            return
        # After a brief wait, one poll finds all events that arrive shortly after each other.
        if found and self._targets.engine.work_for(poll_seconds(found, 0.0)):
            return
        if not left:
            began = time.monotonic()
            self._targets.engine.work_for(UNANNOUNCED_SECONDS, self._announcements)
            self._waited = time.monotonic() - began >= UNANNOUNCED_SECONDS
