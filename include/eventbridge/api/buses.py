"""The buses that the API publishes to, by today's rule files; a changed file counts within seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from eventbridge.api.refusal import Refused
from eventbridge.api.writer import BusWriter, Places
from eventbridge.rule import Bus, RuleSet
from eventbridge.rule.operations_bus import OPERATIONS_BUS
from eventbridge.sources.protocol import Publisher
from eventbridge.stages.operate.find import find_bus, find_topic
from eventbridge.stages.runtime.runtime import Runtime

#: How long rule files, and tokens, are believed to be as they were.
BELIEVED_SECONDS = 2.0


@dataclass
class _Open:
    bus: Bus
    writer: BusWriter


class Buses:
    """Finds buses by name and publishes to them, each by a thread of its own; used from one event loop."""

    def __init__(self, work: Runtime) -> None:
        self._work = work
        self._rules: RuleSet | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._open: dict[str, _Open] = {}

    async def find(self, name: str, topic: str | None) -> tuple[Bus, str]:
        """Return a bus and a topic of it, its first for None; raises NotFoundError, and Refused for our own bus."""
        if name == OPERATIONS_BUS.name:
            raise Refused(HTTPStatus.FORBIDDEN, f"The bus {name!r} is the product's own: only it publishes there")
        bus = find_bus(await self.rules(), name)
        return bus, find_topic(bus, topic)

    async def rules(self) -> RuleSet:
        """Return the rules as they were a moment ago; raises RuleFileError if no files ever were good."""
        if self._rules is None or time.monotonic() - self._read_at > BELIEVED_SECONDS:
            async with self._reading:
                if self._rules is None or time.monotonic() - self._read_at > BELIEVED_SECONDS:
                    self._rules = await asyncio.to_thread(self._work.rule_set)
                    self._read_at = time.monotonic()
        return self._rules

    async def publish(self, bus: Bus, topic: str, records: Sequence[tuple[bytes, str | None]]) -> Places:
        """Return where records lie, once all of them are durable; raises BusError if they may not all be there."""
        return await asyncio.wrap_future((await self._writer(bus)).publish(records, topic))

    async def close(self) -> None:
        """Publish what waits, then let go of all buses."""
        opened, self._open = self._open, {}
        await asyncio.gather(*(asyncio.to_thread(each.writer.close) for each in opened.values()))

    async def _writer(self, bus: Bus) -> BusWriter:
        known = self._open.get(bus.name)
        if known is not None and known.bus == bus:
            return known.writer
        made = self._open[bus.name] = _Open(bus, BusWriter(bus.name, self._opener(bus)))
        if known is not None:  # its rule file changed
            await asyncio.to_thread(known.writer.close)
        return made.writer

    def _opener(self, bus: Bus) -> Callable[[], Publisher]:
        return lambda: self._work.open_publisher(bus)
