"""What a window took of its bus, in memory until it is landed: a broker's retention may drop it in the meantime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.model.queue import Queue
from eventbridge.sources.messages import MESSAGES


@dataclass
class _Taken:
    """Everything that a queue held from offset `start` on, before `end`."""

    start: int
    end: int
    blocks: list[pa.RecordBatch]


@dataclass
class TakenMessages:
    """Messages as a log gave them, by queue; one thread adds to them, or after it another reads them."""

    _queues: dict[Queue, _Taken] = field(default_factory=dict)

    def add(self, queue: Queue, start: int, end: int, blocks: Sequence[pa.RecordBatch]) -> None:
        """Add all that the log held from `start` to `end`, where what was added of the queue before it ends."""
        taken = self._queues.setdefault(queue, _Taken(start, start, []))
        assert start == taken.end, "a window reads on where it stands"
        taken.blocks += blocks
        taken.end = end

    def covers(self, queue: Queue, start: int, end: int) -> bool:
        """Return whether everything of a range was taken."""
        taken = self._queues.get(queue)
        return taken is not None and taken.start <= start and end <= taken.end

    def read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range that was taken, as the log does."""
        blocks = self._queues[queue].blocks
        table = pa.Table.from_batches(blocks, schema=MESSAGES)
        offsets = table["offset"]
        wanted = table.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
        yield from wanted.combine_chunks().to_batches()
