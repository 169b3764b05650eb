"""Keeps in memory the messages that an open batch has taken from its bus, until they are landed.

A broker's retention may delete them from the bus in the meantime.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa

from eventbridge.model.partition import Partition
from eventbridge.sources.messages import message_block

#: A message: its offset, when it was published in microseconds since 1970, and its body, in structured JSON unless the
#: message is refused.
Row = tuple[int, int, bytes | None]


@dataclass
class _Taken:
    """All messages that a partition held from offset `start` (included) to `end` (excluded)."""

    start: int
    end: int
    rows: list[Row] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # by offset


@dataclass
class TakenMessages:
    """Messages by partition, as Python objects, because small blocks of columns take more memory than their content.

    The class is not thread-safe: another thread may read only after the thread that adds has finished.
    """

    _partitions: dict[Partition, _Taken] = field(default_factory=dict)

    def add(self, partition: Partition, start: int, end: int, rows: Sequence[Row], refused: Mapping[int, str]) -> None:
        """Add all messages from `start` (included) to `end` (excluded), contiguous with earlier ones; `refused` has
        reasons by row."""
        taken = self._partitions.setdefault(partition, _Taken(start, start))
        assert start == taken.end, "an open batch continues at its position"
        taken.rows += rows
        taken.refused.update((rows[row][0], why) for row, why in refused.items())
        taken.end = end

    def covers(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether every message of a range was taken."""
        taken = self._partitions.get(partition)
        return taken is not None and taken.start <= start and end <= taken.end

    def messages(
        self, partition: Partition, start: int, end: int, limit: int, max_bytes: int
    ) -> tuple[pa.Table, Mapping[int, str], int]:
        """Return the first messages of a taken range, the reasons why some are not events (by row), and their end
        offset.

        There are at most `limit` messages, and none after those that reach `max_bytes`.
        """
        taken = self._partitions[partition]
        first = bisect_left(taken.rows, start, key=itemgetter(0))
        last = min(first + limit, bisect_left(taken.rows, end, key=itemgetter(0)))
        size = 0
        for number in range(first, last):
            size += len(taken.rows[number][2] or b"")
            if size >= max_bytes:
                last = number + 1
                break
        rows = taken.rows[first:last]
        offsets, published, bodies = zip(*rows, strict=True) if rows else ((), (), ())
        refused = {row: taken.refused[each] for row, each in enumerate(offsets) if each in taken.refused}
        if last < len(taken.rows) and taken.rows[last][0] < end:
            end = offsets[-1] + 1
        return pa.Table.from_batches([message_block(offsets, published, bodies)]), refused, end
