"""The bus of a streaming task: open as long as the task, and followed if its servers are expensive to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eventbridge.model.partition import Partition
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import FollowableLog, LogSource


class StreamingBus:
    """Opens the bus that batches read, and keeps it for the next batch; one thread at a time uses it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._source: LogSource | None = None
        self._listened: Bus | None = None
        self._stands: Mapping[Partition, int] | None = None

    def open(self, bus: Bus) -> LogSource:
        """Return the bus, opened if necessary."""
        if bus != self._listened:
            self.close()
        source = self._source = self._source or self._runtime.open_source(bus)
        self._listened = bus
        return source

    @contextmanager
    def reading(self, bus: Bus, ends: Mapping[Partition, int]) -> Iterator[LogSource]:
        """Yield the bus to read from `ends` on, which the body moves; after an error it is opened again."""
        source = self.open(bus)
        try:
            if isinstance(source, FollowableLog) and self._stands != ends:
                source.follow(ends)
            yield source
        except BaseException:
            self.close()
            raise
        self._stands = dict(ends)

    def close(self) -> None:
        """Close the bus."""
        source, self._source = self._source, None
        self._listened = self._stands = None
        if source is not None:
            source.close()
