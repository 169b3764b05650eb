"""Publishes events from one thread for each bus, and refuses them if the bus is overloaded or a quota is used up."""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import ParamSpec, TypeVar

from eventbridge.api.refusal import CallRefused
from eventbridge.control.publish import BusWatch
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.policy.capacity import Refusal, Watermarks, refusal
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.find import find_bus, find_topic
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import Publisher, SizeLimitedPublisher

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: The time for which rule files and tokens are cached.
CACHED_SECONDS = 2.0


#: The time for which a bus's free space and backlog are cached.
PRESSURE_CACHED_SECONDS = 1.0


@dataclass
class _OpenBus:
    bus: Bus
    writer: BusWriter
    watch: BusWatch
    #: A separate thread for checks of the load, which wait for the servers of the bus.
    thread: ThreadPoolExecutor
    polling: asyncio.Lock = field(default_factory=asyncio.Lock)
    polled_at: float = -PRESSURE_CACHED_SECONDS
    refusal: Refusal | None = None

    def run(self, do: Callable[_P, _T], *args: _P.args, **values: _P.kwargs) -> Awaitable[_T]:
        """Run a function in the thread of the bus."""
        return asyncio.get_running_loop().run_in_executor(self.thread, partial(do, *args, **values))


class Buses:
    """Finds buses by name, and publishes to each from a separate thread. Use it from one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rules: RuleSet | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._open: dict[str, _OpenBus] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._rates = PublishRates(runtime)

    async def find(self, name: str, topic: str | None) -> tuple[Bus, str]:
        """Return a bus and one of its topics, the first if `topic` is None.

        Raises NotFoundError for an unknown name, CallRefused for the bus of operational events.
        """
        if name == OPERATIONS_BUS.name:
            raise CallRefused(
                HTTPStatus.FORBIDDEN,
                f"The bus {name!r} is reserved for EventBridge's own events. Publish to another bus",
            )
        bus = find_bus(await self.rules(), name)
        return bus, find_topic(bus, topic)

    async def rules(self) -> RuleSet:
        """Return the rules in force, at most two seconds old. Raises RuleFileError if no rule files were ever valid."""
        if self._rules is None or time.monotonic() - self._read_at > CACHED_SECONDS:
            async with self._reading:
                if self._rules is None or time.monotonic() - self._read_at > CACHED_SECONDS:
                    self._rules = await asyncio.to_thread(self._runtime.rule_set)
                    self._read_at = time.monotonic()
        return self._rules

    async def publish(self, bus: Bus, topic: str, records: Sequence[tuple[bytes, str | None]]) -> Positions:
        """Publish records and return their positions once all of them are durable.

        A record that is too large for the topic is not published; its result is an int, the topic's maximum size in
        bytes.

        Raises BusError if some records may not be on the bus, NotFoundError if the bus or the topic was removed from
        the rule files since it was found.
        """
        current = find_bus(await self.rules(), bus.name)
        # No await from here until the call is queued, so that the writer cannot be closed in between.
        call = self._open_bus(current).writer.publish(records, find_topic(current, topic))
        return await asyncio.wrap_future(call)

    async def check_pressure(self, bus: Bus) -> None:
        """Raise CallRefused (429) if the disk, the store or the storage quota is full, or if the backlog of the bus is
        too large."""
        bus = find_bus(await self.rules(), bus.name)
        opened = self._open_bus(bus)
        async with opened.polling:
            if time.monotonic() - opened.polled_at > PRESSURE_CACHED_SECONDS:
                rules = await self.rules()
                runners = [runner for runner, name in rules.runners().items() if name == bus.name]
                load = await opened.run(opened.watch.load, runners, rules)
                opened.refusal = refusal(load, self._watermarks, bus.max_backlog, opened.refusal)
                opened.polled_at = time.monotonic()
        if opened.refusal is not None:
            raise CallRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"The bus {bus.name!r} is not accepting events: {opened.refusal.reason}. Nothing was published",
                {"retry-after": str(opened.refusal.retry_seconds)},
            )

    async def check_rate(self, bus: Bus, events: int) -> None:
        """Count the events against the quota of the bus's owner. Raises CallRefused (429) if it is used up."""
        quota = (await self.rules()).quotas.get(bus.owner or "")
        if bus.owner is None or quota is None or quota.published_per_second is None or not events:
            return
        wait = await self._rates.wait_seconds(bus.owner, quota.published_per_second, events)
        if wait:
            raise CallRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"The owner {bus.owner!r} has used up its quota of {quota.published_per_second:g} events a second. "
                "Nothing was published",
                {"retry-after": str(math.ceil(wait))},
            )

    async def close(self) -> None:
        """Publish the queued records, then close all buses."""
        opened, self._open = self._open, {}
        await asyncio.gather(*self._closing, *(_close(each) for each in opened.values()))

    @property
    def _watermarks(self) -> Watermarks:
        settings = self._runtime.settings
        return Watermarks(settings.disk_min_free_size, settings.disk_resume_free_size)

    def _open_bus(self, bus: Bus) -> _OpenBus:
        """Return the open bus, reopened if its rule file changed; never awaits, so it cannot be closed meanwhile."""
        known = self._open.get(bus.name)
        if known is not None and known.bus == bus:
            return known
        writer = BusWriter(bus.name, lambda: self._runtime.open_publisher(bus))
        made = self._open[bus.name] = _OpenBus(
            bus, writer, BusWatch(self._runtime, bus), ThreadPoolExecutor(1, f"load-{bus.name}")
        )
        if known is not None:  # its rule file changed
            closing = asyncio.create_task(_close(known))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return made


async def _close(opened: _OpenBus) -> None:
    await opened.run(opened.writer.close)
    async with opened.polling:
        opened.polled_at = math.inf  # a call that still waits for the lock uses the last result, and reopens nothing
        await opened.run(opened.watch.close)
    opened.thread.shutdown(wait=False)


@dataclass
class _Allowance:
    per_second: float
    events: int = 0  # the remaining allowance
    refused_until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PublishRates:
    """Counts events against the publishing quotas of owners. Use it from one event loop.

    The ledger counts for all servers; each server takes a small allowance in advance.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, _Allowance] = {}

    async def wait_seconds(self, owner: str, per_second: float, events: int) -> float:
        """Count the events and return 0, or return the seconds after which the owner may publish again.

        Raises LedgerError if the ledger fails.
        """
        known = self._known.get(owner)
        if known is None or known.per_second != per_second:
            known = self._known[owner] = _Allowance(per_second)
        async with known.asking:
            if known.events < events:
                left = known.refused_until - time.monotonic()
                if left > 0:
                    return left
                missing = events - known.events
                given = await asyncio.to_thread(self._runtime.ledger.publish_balances.grant, owner, per_second, missing)
                if given.wait_seconds:
                    known.refused_until = time.monotonic() + given.wait_seconds
                    return given.wait_seconds
                known.events += given.events
            known.events -= events
            return 0.0


#: At this number of events, no further calls join a transaction, because the calls in it would wait longer.
MAX_JOINED = 5_000
#: The maximum size of the events that wait for one bus, so that a slow bus leaves memory for calls to other buses.
MAX_QUEUED_BYTES = 128 * 1024 * 1024

#: The body and the key of an event.
Record = tuple[bytes, str | None]
#: The partition and offset of a record or, if it is too large, the maximum total bytes of a body and key on its topic.
Position = tuple[Partition, int] | int
Positions = list[Position]


@dataclass(frozen=True)
class _Call:
    records: Sequence[Record]
    topic: str
    positions: Future[Positions] = field(default_factory=Future)


class BusWriter:
    """Publishes the records of calls in order of arrival, from one thread; waiting calls to a topic are joined.

    After a failure it reopens the bus for the next call. It is thread-safe.
    """

    def __init__(self, name: str, open_publisher: Callable[[], Publisher]) -> None:
        self._name = name
        self._open = open_publisher
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False
        self._queued_bytes = 0
        self._lock = threading.Lock()  # guards `_closed` and `_queued_bytes`
        self._thread = threading.Thread(target=self._run, name=f"bus-{name}", daemon=True)
        self._thread.start()

    def publish(self, records: Sequence[Record], topic: str) -> Future[Positions]:
        """Return a future for the records' positions; it is done once all of them are durable, or fails with BusError.

        A record that is too large for its topic is left out; the others are published.
        Raises BusError once the writer is closed, CallRefused (503) if the waiting records are too large.
        """
        call = _Call(records, topic)
        size = sum(map(_bytes_of, records))
        call.positions.add_done_callback(lambda _: self._release(size))
        with self._lock:
            if self._closed:
                raise BusError("the bus was closed before the events were published. Nothing was published")
            if self._queued_bytes + size > MAX_QUEUED_BYTES:
                raise CallRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"The bus {self._name!r} stores events more slowly than they arrive, and its queue of "
                    f"{MAX_QUEUED_BYTES:,} bytes is full. Send the call again after the delay in "
                    "Retry-After. Nothing was published",
                    {"retry-after": "1"},
                    code="server_busy",
                )
            self._queued_bytes += size
            self._calls.put(call)
        return call.positions

    def _release(self, size: int) -> None:
        with self._lock:
            self._queued_bytes -= size

    def close(self) -> None:
        """Publish the queued calls, then close the bus."""
        with self._lock:
            self._closed = True
            self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        publisher: Publisher | None = None
        is_running = True
        while is_running:
            calls, is_running = self._waiting()
            for topic, joined in _group_by_topic(calls).items():
                try:
                    publisher = publisher or self._open()
                    positions = _publish(publisher, topic, [each for call in joined for each in call.records])
                except BaseException as error:  # whatever it is, every caller needs a result
                    _close_publisher(publisher)
                    publisher = None
                    for call in joined:
                        call.positions.set_exception(error)
                else:
                    _resolve_calls(joined, positions)
        _close_publisher(publisher)

    def _waiting(self) -> tuple[list[_Call], bool]:
        """Return the next calls, and whether more may follow."""
        call = self._calls.get()
        calls: list[_Call] = []
        count = 0
        while call is not None:
            if call.positions.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                calls.append(call)
                count += len(call.records)
            if count >= MAX_JOINED:
                return calls, True
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return calls, True
        return calls, False


def _publish(publisher: Publisher, topic: str, records: Sequence[Record]) -> Positions:
    most = publisher.max_bytes(topic) if isinstance(publisher, SizeLimitedPublisher) else None
    fits = [most is None or _bytes_of(record) <= most for record in records]
    fitting = [record for record, fit in zip(records, fits, strict=True) if fit]
    positions = iter(publisher.publish(fitting, topic=topic) if fitting else ())
    return [next(positions) if fit else most or 0 for fit in fits]


def _bytes_of(record: Record) -> int:
    body, key = record
    return len(body) + (0 if key is None else len(key.encode("utf-8", "surrogatepass")))


def _group_by_topic(calls: Sequence[_Call]) -> dict[str, list[_Call]]:
    grouped: dict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        grouped[call.topic].append(call)
    return grouped


def _resolve_calls(calls: Sequence[_Call], positions: Positions) -> None:
    start = 0
    for call in calls:
        end = start + len(call.records)
        call.positions.set_result(positions[start:end])
        start = end


def _close_publisher(publisher: Publisher | None) -> None:
    if publisher is not None:
        try:
            publisher.close()
        except Exception:  # its first failure was reported to the callers
            log.warning("cannot close a bus that failed", exc_info=True)
