"""The range being read: a reader that stops within it and continues there reuses what was pulled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from eventbridge.model.partition import Partition

Blocks = Generator[pa.RecordBatch, None, None]

#: Brokers close a connection that was silent for two minutes.
_HOLD_SECONDS: Final = 30.0


@dataclass(frozen=True)
class _StoppedRange:
    """A range whose reader stopped within or after a block."""

    partition: Partition
    end: int
    blocks: Blocks
    last: pa.RecordBatch
    holds_until: float

    def is_continued_by(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a range is the rest of this one, from within its last block or right behind it."""
        return (
            (self.partition, self.end) == (partition, end)
            and self.last["offset"][0].as_py() <= start <= self.last["offset"][-1].as_py() + 1
            and time.monotonic() < self.holds_until
        )

    def rest_from(self, start: int) -> pa.RecordBatch:
        """Return the rest of the last block from an offset on."""
        return self.last.slice(int(np.searchsorted(self.last["offset"].to_numpy(), start)))


class RangeReader:
    """Reads ranges of partitions by `begin`, and keeps the last unfinished one. Threads may share an instance."""

    def __init__(self, begin: Callable[[Partition, int, int], Blocks]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._stopped: _StoppedRange | None = None

    def blocks(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of a range, continuing the pulls of the previous one if this is its rest."""
        stopped = self._swapped(None)
        rest: pa.RecordBatch | None = None
        if stopped is not None and stopped.is_continued_by(partition, start, end):
            blocks, rest = stopped.blocks, stopped.rest_from(start)
        else:
            if stopped is not None:
                stopped.blocks.close()
            blocks = self._begin(partition, start, end)
        block = rest if rest is not None and rest.num_rows else next(blocks, None)
        while block is not None:
            try:
                yield block
            except GeneratorExit:
                self._keep(_StoppedRange(partition, end, blocks, block, time.monotonic() + _HOLD_SECONDS))
                raise
            block = next(blocks, None)

    def close(self) -> None:
        """Drop pulled messages that were not read."""
        self._keep(None)

    def _keep(self, stopped: _StoppedRange | None) -> None:
        before = self._swapped(stopped)
        if before is not None:
            before.blocks.close()

    def _swapped(self, stopped: _StoppedRange | None) -> _StoppedRange | None:
        with self._lock:
            before, self._stopped = self._stopped, stopped
        return before
