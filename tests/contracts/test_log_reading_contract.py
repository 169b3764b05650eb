"""What every log source must do when it is read: by range, by time, and across missing messages."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from contracts.log_sources import RESOLUTION, AnyLog, Clock, broker_of, drop_older, publish

from eventbridge.errors import OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.table_log import TableLog
from eventbridge.sources.embedded.tables import microseconds
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import PagedLog
from eventbridge.testing.sources import messages_of


def test_a_range_is_read_and_nothing_else(log: AnyLog, partition: Partition) -> None:
    """Start is included, end is not; an empty range yields nothing; reading again yields the same."""
    publish(log, [str(number).encode() for number in range(10)])

    assert [message.offset for message in messages_of(log.read(partition, 3, 7))] == [3, 4, 5, 6]
    assert [message.offset for message in messages_of(log.read(partition, 3, 7))] == [3, 4, 5, 6]
    assert list(log.read(partition, 7, 7)) == []
    assert [message.body for message in messages_of(log.read(partition, 9, 10))] == [b"9"]


def test_a_log_is_read_by_blocks(log: AnyLog, partition: Partition) -> None:
    """Each block has the columns of `MESSAGES` and at least one message; blocks follow one another by offset."""
    publish(log, [b"x"] * 10)
    blocks = list(log.read(partition, 1, 9))

    assert all(block.schema.equals(MESSAGES) and block.num_rows for block in blocks)
    assert all(block.column(name).null_count == 0 for block in blocks for name in ("offset", "published_at"))
    assert [offset for block in blocks for offset in block["offset"].to_pylist()] == list(range(1, 9))


def test_pages_hold_what_is_read(log: AnyLog, partition: Partition) -> None:
    """Offset, time and body of each message of a range; the embedded buses, which keep no more, give pages."""
    publish(log, [str(number).encode() for number in range(10)])
    messages = messages_of(log.read(partition, 3, 7))

    assert isinstance(log, PagedLog) == isinstance(log, TableLog)
    if isinstance(log, PagedLog):
        found = [row for page in log.pages(partition, 3, 7) for row in page]
        assert found == [(each.offset, microseconds(each.published_at), each.body) for each in messages]
        assert list(log.pages(partition, 7, 7)) == []


def test_a_range_beyond_the_end_is_refused(log: AnyLog, partition: Partition) -> None:
    """A range that reaches beyond the end was planned on another log: the call raises, and nothing passes as a gap."""
    publish(log, [b"1", b"2"])

    with pytest.raises(OffsetGapError, match=r"0 to 3"):
        log.read(partition, 0, 3)


def test_offset_at_finds_the_first_message_of_a_time(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """Messages of one moment count from the first of them; before all is the start, after all the end."""
    for _ in range(3):
        publish(log, [b"x", b"x"])
        clock.move(10)

    def at(seconds: float) -> int:
        return log.offset_at(partition, clock.at(seconds))

    assert [at(-1), at(0), at(RESOLUTION[type(log)] / 1_000_000), at(10), at(10.5), at(20), at(21)] == [
        0,
        0,
        2,
        2,
        4,
        4,
        6,
    ]
    assert log.offset_at(Partition("returns", broker_of(log), 0), clock.at(0)) == 0


def test_a_clock_that_is_set_back_hides_nothing(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """A start by time does not pass over a message because one before it has a later time."""
    publish(log, [b"1"])
    clock.move(-60)
    publish(log, [b"2"])
    clock.move(61)
    publish(log, [b"3"])

    times = [message.published_at for message in messages_of(log.read(partition, 0, 3))]
    kept = [[0, 0, 1], [0, -60, 1]]  # Kafka keeps what publishers say
    assert any(all(map(clock.took, times, each)) for each in kept)
    assert log.offset_at(partition, clock.at(0)) == 0


def test_a_message_dropped_by_the_log_is_a_gap(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """Dropped messages are left out, the others keep their offsets, and the start moves; the end does not."""
    for _ in range(3):
        publish(log, [b"x", b"x"])
        clock.move(10)
    drop_older(log, clock.at(15), clock)

    assert log.earliest(partition) == 4
    assert log.end(partition) == 6
    assert [message.offset for message in messages_of(log.read(partition, 1, 6))] == [4, 5]
    assert list(log.read(partition, 0, 4)) == []
    assert log.offset_at(partition, clock.at(0)) == 4
    assert publish(log, [b"y"]) == [6]


def test_a_log_that_lost_everything_begins_at_its_end(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """No message left: earliest is the end, and offsets continue from it."""
    publish(log, [b"x", b"x"])
    clock.move(10)
    drop_older(log, clock.now, clock)

    assert log.earliest(partition) == log.end(partition) == log.offset_at(partition, clock.at(0)) == 2
    assert publish(log, [b"y"]) == [2]
    assert [message.body for message in messages_of(log.read(partition, 0, 3))] == [b"y"]


def test_reading_continues_while_others_publish(log: AnyLog, partition: Partition) -> None:
    """A reader that follows the end sees every message once, in order, with no hole."""
    done = threading.Event()

    def write() -> None:
        for number in range(100):
            publish(log, [str(number).encode()])
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        seen: list[bytes] = []
        for last in itertools.chain(iter(done.is_set, True), [True]):
            end = log.end(partition)
            seen += [message.body or b"" for message in messages_of(log.read(partition, len(seen), end))]
            assert len(seen) == end, last
        writer.result()

    assert seen == [str(number).encode() for number in range(100)]
