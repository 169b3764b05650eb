"""A range that is read file by file: who stops within it goes on by the same pulls."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from eventbridge.model.queue import Queue
from eventbridge.sources.messages import message_block
from eventbridge.sources.rocketmq.ranges import Ranges

QUEUE = Queue("flights", "broker-a", 0)


class Pulls:
    """Blocks of ten messages, and how often somebody began to pull them, and ended it."""

    def __init__(self) -> None:
        self.begun: list[tuple[Queue, int, int]] = []
        self.ended = 0

    def begin(self, queue: Queue, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        """Yield a range as blocks."""
        self.begun.append((queue, start, end))
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


def test_who_stops_goes_on_where_it_was() -> None:
    """Within a block and at its end; all comes once, by one pull."""
    pulls = Pulls()
    ranges = Ranges(pulls.begin)

    found = taken(ranges.blocks(QUEUE, 0, 45), 17)
    found += taken(ranges.blocks(QUEUE, 17, 45), 13)
    found += taken(ranges.blocks(QUEUE, 30, 45), 100)

    assert found == list(range(45))
    assert pulls.begun == [(QUEUE, 0, 45)]
    assert pulls.ended == 1


def test_another_range_is_begun_and_the_first_one_ended() -> None:
    """Of another queue, to another end, from a place that was passed, or behind one that was not reached."""
    for queue, start, end in (
        (Queue("flights", "broker-a", 1), 12, 45),
        (QUEUE, 12, 40),
        (QUEUE, 9, 45),
        (QUEUE, 21, 45),
    ):
        pulls = Pulls()
        ranges = Ranges(pulls.begin)
        taken(ranges.blocks(QUEUE, 0, 45), 12)

        assert taken(ranges.blocks(queue, start, end), 5) == list(range(start, start + 5))
        assert pulls.begun == [(QUEUE, 0, 45), (queue, start, end)]
        assert pulls.ended == 1


def test_what_was_not_taken_is_let_go_of() -> None:
    """When the source is closed."""
    pulls = Pulls()
    ranges = Ranges(pulls.begin)
    taken(ranges.blocks(QUEUE, 0, 45), 12)
    assert pulls.ended == 0

    ranges.close()

    assert pulls.ended == 1
