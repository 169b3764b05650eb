"""A range that is read file by file: a reader that stops within it continues by the same pulls."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from eventbridge.model.partition import Partition
from eventbridge.sources.messages import message_block
from eventbridge.sources.rocketmq.log import RangeReader

PARTITION = Partition("flights", "broker-a", 0)


class Pulls:
    """Blocks of ten messages, and how often a pull of them began, and ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[Partition, int, int]] = []
        self.ended = 0

    def begin(self, partition: Partition, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        """Yield a range as blocks."""
        self.begun.append((partition, start, end))
        try:
            for first in range(start, end, 10):
                offsets = range(first, min(first + 10, end))
                yield message_block(list(offsets), [0] * len(offsets), [b""] * len(offsets))
        finally:
            self.ended += 1


def taken(blocks: Iterator[pa.RecordBatch], count: int) -> list[int]:
    """Return the offsets of some messages, and stop there."""
    found: list[int] = []
    while len(found) < count and (block := next(blocks, None)) is not None:
        found += block["offset"].to_pylist()
    blocks.close()  # type: ignore[attr-defined]
    return found[:count]


def test_a_stopped_reader_continues_where_it_was() -> None:
    """Within a block and at its end; all comes once, by one pull."""
    pulls = Pulls()
    ranges = RangeReader(pulls.begin)

    found = taken(ranges.blocks(PARTITION, 0, 45), 17)
    found += taken(ranges.blocks(PARTITION, 17, 45), 13)
    found += taken(ranges.blocks(PARTITION, 30, 45), 100)

    assert found == list(range(45))
    assert pulls.begun == [(PARTITION, 0, 45)]
    assert pulls.ended == 1


def test_another_range_is_begun_and_the_first_one_ended() -> None:
    """Of another partition, to another end, from a position that was passed, or behind one that was not reached."""
    for partition, start, end in (
        (Partition("flights", "broker-a", 1), 12, 45),
        (PARTITION, 12, 40),
        (PARTITION, 9, 45),
        (PARTITION, 21, 45),
    ):
        pulls = Pulls()
        ranges = RangeReader(pulls.begin)
        taken(ranges.blocks(PARTITION, 0, 45), 12)

        assert taken(ranges.blocks(partition, start, end), 5) == list(range(start, start + 5))
        assert pulls.begun == [(PARTITION, 0, 45), (partition, start, end)]
        assert pulls.ended == 1


def test_messages_not_taken_are_released() -> None:
    """When the source is closed."""
    pulls = Pulls()
    ranges = RangeReader(pulls.begin)
    taken(ranges.blocks(PARTITION, 0, 45), 12)
    assert pulls.ended == 0

    ranges.close()

    assert pulls.ended == 1
