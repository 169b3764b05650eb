"""The buses that the API publishes to; a changed rule file takes effect within seconds."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from eventbridge.api.publish_rates import PublishRates
from eventbridge.api.refusal import CallRefused
from eventbridge.api.writer import BusWriter, Positions
from eventbridge.control.bus_pressure import BusWatch
from eventbridge.policy.bus_pressure import Refusal, refusal
from eventbridge.policy.watermarks import Watermarks
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.find import find_bus, find_topic
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.runtime import Runtime

#: How long rule files and tokens are cached.
CACHED_SECONDS = 2.0


#: How long a bus's free space and backlog are cached.
PRESSURE_CACHED_SECONDS = 1.0


@dataclass
class _OpenBus:
    bus: Bus
    writer: BusWriter
    watch: BusWatch
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    looked_at: float = -PRESSURE_CACHED_SECONDS
    refusal: Refusal | None = None


class Buses:
    """Finds buses by name and publishes to each of them from a thread of its own. Use it from one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rules: RuleSet | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._open: dict[str, _OpenBus] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._rates = PublishRates(runtime)

    async def find(self, name: str, topic: str | None) -> tuple[Bus, str]:
        """Return a bus and one of its topics (None: the first).

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
        """Return the rules in force, at most two seconds old; raises RuleFileError if no rule files were ever valid."""
        if self._rules is None or time.monotonic() - self._read_at > CACHED_SECONDS:
            async with self._reading:
                if self._rules is None or time.monotonic() - self._read_at > CACHED_SECONDS:
                    self._rules = await asyncio.to_thread(self._runtime.rule_set)
                    self._read_at = time.monotonic()
        return self._rules

    async def publish(self, bus: Bus, topic: str, records: Sequence[tuple[bytes, str | None]]) -> Positions:
        """Publish records and return their positions once all of them are durable.

        A record that is too large for the topic is not published; its position is an int, the largest size in bytes.

        Raises BusError if some records may not be on the bus, NotFoundError if the bus or the topic was removed from
        the rule files since it was found.
        """
        current = find_bus(await self.rules(), bus.name)
        # No await from here until the call is queued, so that the writer cannot be closed in between.
        call = self._opened(current).writer.publish(records, find_topic(current, topic))
        return await asyncio.wrap_future(call)

    async def check_pressure(self, bus: Bus) -> None:
        """Raise CallRefused (429) if the bus takes no events now: disk or store are full, or its backlog is large."""
        bus = find_bus(await self.rules(), bus.name)
        opened = self._opened(bus)
        async with opened.looking:
            if time.monotonic() - opened.looked_at > PRESSURE_CACHED_SECONDS:
                rules = await self.rules()
                runners = [runner for runner, name in rules.runners().items() if name == bus.name]
                look = await asyncio.to_thread(opened.watch.look, runners, rules)
                opened.refusal = refusal(look, self._watermarks, bus.max_backlog, opened.refusal)
                opened.looked_at = time.monotonic()
        if opened.refusal is not None:
            raise CallRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"The bus {bus.name!r} takes no events now: {opened.refusal.reason}. Nothing was published",
                {"retry-after": str(opened.refusal.retry_seconds)},
            )

    async def check_rate(self, bus: Bus, events: int) -> None:
        """Count the events against the quota of the bus's owner; raises CallRefused (429) if it is used up."""
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

    def _opened(self, bus: Bus) -> _OpenBus:
        """Return a bus of the current rules, opened; without an await, so that the bus cannot be closed meanwhile."""
        known = self._open.get(bus.name)
        if known is not None and known.bus == bus:
            return known
        writer = BusWriter(bus.name, lambda: self._runtime.open_publisher(bus))
        made = self._open[bus.name] = _OpenBus(bus, writer, BusWatch(self._runtime, bus))
        if known is not None:  # its rule file changed
            closing = asyncio.create_task(_close(known))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return made


async def _close(opened: _OpenBus) -> None:
    await asyncio.to_thread(opened.writer.close)
    async with opened.looking:
        opened.looked_at = math.inf  # a thread that still waits for the lock uses the last result, and reopens nothing
        await asyncio.to_thread(opened.watch.close)
