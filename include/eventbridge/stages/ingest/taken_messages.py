"""What an open batch took of its bus, in memory until it is landed: a broker's retention may drop it in the
meantime.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa

from eventbridge.model.partition import Partition
from eventbridge.sources.messages import message_block

#: Offset, when it was published in microseconds since 1970, body: in structured JSON, unless the message is refused.
Row = tuple[int, int, bytes | None]


@dataclass
class _Taken:
    """Everything that a partition held from offset `start` on, before `end`."""

    start: int
    end: int
    rows: list[Row] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # by offsets


@dataclass
class TakenMessages:
    """Messages by partition, as objects: small blocks of columns take more room than what is in them.

    One thread adds to them, or after it another reads them.
    """

    _partitions: dict[Partition, _Taken] = field(default_factory=dict)

    def add(self, partition: Partition, start: int, end: int, rows: Sequence[Row], refused: Mapping[int, str]) -> None:
        """Add all that the log held from `start` on, where what was added before ends; `refused` says why, by row."""
        taken = self._partitions.setdefault(partition, _Taken(start, start))
        assert start == taken.end, "an open batch reads on where it stands"
        taken.rows += rows
        taken.refused.update((rows[row][0], why) for row, why in refused.items())
        taken.end = end

    def covers(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether everything of a range was taken."""
        taken = self._partitions.get(partition)
        return taken is not None and taken.start <= start and end <= taken.end

    def messages(
        self, partition: Partition, start: int, end: int, most: int, most_bytes: int
    ) -> tuple[pa.Table, Mapping[int, str], int]:
        """Return what comes first in a range that was taken, why rows of it are no events, and up to where that is.

        At most `most` messages, and none after those that reach `most_bytes`.
        """
        taken = self._partitions[partition]
        first = bisect_left(taken.rows, start, key=itemgetter(0))
        last = min(first + most, bisect_left(taken.rows, end, key=itemgetter(0)))
        size = 0
        for number in range(first, last):
            size += len(taken.rows[number][2] or b"")
            if size >= most_bytes:
                last = number + 1
                break
        rows = taken.rows[first:last]
        offsets, published, bodies = zip(*rows, strict=True) if rows else ((), (), ())
        refused = {row: taken.refused[each] for row, each in enumerate(offsets) if each in taken.refused}
        if last < len(taken.rows) and taken.rows[last][0] < end:
            end = offsets[-1] + 1
        return pa.Table.from_batches([message_block(offsets, published, bodies)]), refused, end
