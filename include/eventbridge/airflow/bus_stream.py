"""The poll of one bus in a triggerer: it hands each watcher and sensor its events, and records what Airflow recorded.

An asset event is recorded exactly once. The position of a watcher moves only after Airflow has recorded its asset
events, which Airflow confirms to `BusStream.advance`. Before asset events are sent to Airflow, the ledger records that
they will be (`claimed`). After a crash in between, `bus_reader` asks Airflow which of them it has recorded.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from eventbridge.model.partition import Partition

if TYPE_CHECKING:
    from eventbridge.airflow.bus_reader import BusReader
    from eventbridge.matching.pattern.nodes import Pattern

log = logging.getLogger(__name__)

#: The poll interval. An asset event takes up to one second more, because that is how often Airflow takes events from
#: its triggers.
POLL_SECONDS = 0.2
#: The wait before the next poll after a poll failed.
_PAUSE_SECONDS = 2.0
#: The largest number of asset events that Airflow has not confirmed yet. It takes them one by one, each in a
#: transaction, so more would only wait in memory.
MAX_IN_FLIGHT = 256

Offsets = dict[Partition, int]
Result = TypeVar("Result")


@dataclass(eq=False)
class Subscription:
    """What one trigger wants from a bus, and how far it has read. Only the thread of the bus uses the lower fields.

    A watcher has `assets`; a sensor has none, and takes one event. `start_at` is where it begins if the ledger has no
    position of it.
    """

    bus: str
    pattern: Pattern | None
    assets: tuple[str, ...] = ()
    name: str = ""
    batch: int = 1
    start_at: str | datetime = "latest"
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_closed: bool = False

    #: The next offset to read of each partition; None until the position is known.
    offsets: Offsets | None = None
    identities: Mapping[str, str] = field(default_factory=dict)
    sent: int = 0  # the number of the last asset event sent
    settled: tuple[int, Offsets] = (0, {})  # the number of the last recorded asset event, and the position after it
    in_flight: int = 0  # polls with asset events that Airflow has not confirmed
    is_broken: bool = False  # Airflow may not have recorded some asset events, so the position is read again
    begin_at: float = 0.0
    last_warning: str = ""

    @property
    def takes_one_at_a_time(self) -> bool:
        """Whether the next asset event waits until Airflow has recorded the last one, so that more events are in it."""
        return self.batch > 1 or not self.assets


#: The open subscriptions of this process by bus, the oldest first.
_subscriptions: dict[str, list[Subscription]] = defaultdict(list)


@contextmanager
def subscribed(subscription: Subscription) -> Iterator[Subscription]:
    """Hand the events of a bus to a subscription until the end of the block."""
    _subscriptions[subscription.bus].append(subscription)
    try:
        yield subscription
    finally:
        subscription.is_closed = True
        _subscriptions[subscription.bus].remove(subscription)


def subscriptions_of(bus: str) -> list[Subscription]:
    """Return the open subscriptions of a bus, the oldest first."""
    return [each for each in list(_subscriptions[bus]) if not each.is_closed]


@dataclass(eq=False)
class Poll:
    """The result of one poll: the payloads of asset events by subscription, and the positions after them."""

    payloads: Mapping[Subscription, Sequence[dict[str, Any]]]
    after: Mapping[Subscription, tuple[int, Offsets]]
    taken: set[Subscription] = field(default_factory=set)

    @property
    def count(self) -> int:
        """The number of asset events."""
        return sum(map(len, self.payloads.values()))

    def take(self, subscription: Subscription) -> Sequence[dict[str, Any]]:
        """Return the payloads for a subscription, which will report them all."""
        self.taken.add(subscription)
        return self.payloads.get(subscription, ())


class BusStream(SharedStreamProducer):
    """Polls a bus in a thread of its own, as long as the bus has watchers or sensors in this triggerer.

    It continues after errors, because the end of a shared stream would fail all its sensors. An error that repeats is
    logged once.
    """

    def __init__(self, bus: str) -> None:
        self._bus = bus
        # One thread, because the buses' SQLite connections belong to the thread that opened them.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"eventbridge-bus-{bus}")
        self._reader: BusReader | None = None
        self._in_flight = 0
        self._last_error = ""

    async def open_stream(self) -> AsyncIterator[tuple[Poll, Poll]]:
        """Yield each poll that has asset events."""
        while True:
            try:
                poll = await self._call(lambda: self._open_reader().poll(MAX_IN_FLIGHT - self._in_flight))
            except Exception as error:  # the poll must survive every outage
                self._report(error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._last_error = ""
            if poll is not None:
                self._in_flight += poll.count
                yield poll, poll
            await asyncio.sleep(POLL_SECONDS)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the positions of the watchers whose asset events Airflow has recorded."""
        polls = [(item.broker_payload, item.outcome.failed == 0) for item in batch]
        self._in_flight -= sum(poll.count for poll, _ in polls)
        try:
            await self._call(lambda: self._open_reader().settle(polls))
        except Exception as error:  # the next poll records the positions
            self._report(error)

    async def aclose(self) -> None:
        """Close the bus and the ledger."""
        if self._reader is not None:
            await self._call(self._reader.close)
        self._thread.shutdown(wait=False)

    def _open_reader(self) -> BusReader:
        if self._reader is None:
            from eventbridge.airflow.bus_reader import BusReader  # in the thread, because the import takes a second

            self._reader = BusReader(self._bus)
        return self._reader

    def _report(self, error: Exception) -> None:
        if self._last_error != str(error):
            self._last_error = str(error)
            log.error("watchers and sensors of the bus %s cannot read it, and wait: %s", self._bus, error)

    async def _call(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
