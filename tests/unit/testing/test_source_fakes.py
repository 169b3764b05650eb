"""The switches of the fakes, which the stages' tests rely on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.testing.sources import InMemoryLog, InMemoryQueue, messages_of

PARTITION = Partition("events", "", 0)


def now() -> datetime:
    """Return one fixed moment."""
    return datetime(2026, 3, 1, tzinfo=UTC)


def filled(count: int) -> InMemoryLog:
    """Return a log of one partition with so many messages."""
    log = InMemoryLog(clock=now)
    log.publish([(str(number).encode(), None) for number in range(count)])
    return log


def test_a_hole_may_lie_anywhere() -> None:
    """`lose` takes messages out of the middle, as compaction does."""
    log = filled(6)
    log.lose(PARTITION, 2, 4)

    assert [message.offset for message in messages_of(log.read(PARTITION, 0, 6))] == [0, 1, 4, 5]
    assert log.earliest(PARTITION) == 0


def test_a_call_fails_as_often_as_asked() -> None:
    """`switches.fail` counts down; the failed call has changed nothing."""
    log = filled(1)
    log.switches.fail("commit", times=2)
    for _ in range(2):
        with pytest.raises(BusError):
            log.commit("crm", {PARTITION: 1})

    assert log.committed("crm") == {}
    log.commit("crm", {PARTITION: 1})
    assert log.committed("crm") == {PARTITION: 1}


def test_a_damaged_message_stops_the_read_before_it() -> None:
    """What was yielded before it is right; it is never left out as if it were a gap; `repair` heals it."""
    log = filled(3)
    log.damage(PARTITION, 1)
    read = messages_of(log.read(PARTITION, 0, 3))

    assert next(read).offset == 0
    with pytest.raises(BusError):
        next(read)
    log.repair()
    assert [message.offset for message in messages_of(log.read(PARTITION, 0, 3))] == [0, 1, 2]


def test_a_truncated_log_refuses_its_old_ranges() -> None:
    """After `truncate` the log ends earlier, and what was planned beyond is an error."""
    log = filled(5)
    log.truncate(PARTITION, 2)

    assert log.end(PARTITION) == 2
    with pytest.raises(OffsetGapError):
        log.read(PARTITION, 2, 5)


def test_a_replaced_log_is_empty_and_another() -> None:
    """Offsets begin again, and only the identity differs from a log that was never used."""
    log = filled(2)
    identities = log.identities()
    log.replace()

    assert log.identities() != identities
    assert log.ends() == {PARTITION: 0}
    assert log.publish([(b"3", None)]) == [(PARTITION, 0)]


def test_a_message_may_have_a_key_and_headers_and_no_body() -> None:
    """`append` makes what other buses hold: a key, headers of which names come again, a tombstone."""
    log = filled(1)
    log.append(PARTITION, None, b"a")
    log.append(PARTITION, b"x", headers=[("ce_id", b"1"), ("trace", None), ("trace", b"2")])

    plain, tombstone, with_headers = messages_of(log.read(PARTITION, 0, 3))
    assert (plain.body, plain.key, plain.headers) == (b"0", None, None)
    assert (tombstone.body, tombstone.key) == (None, b"a")
    assert with_headers.headers == [("ce_id", b"1"), ("trace", None), ("trace", b"2")]


def test_a_partition_may_appear_later() -> None:
    """`add_partition` adds an empty one that takes part from then on."""
    log = filled(1)

    assert log.add_partition("events") == Partition("events", "", 1)
    assert log.ends() == {PARTITION: 1, Partition("events", "", 1): 0}


def test_a_queue_source_fails_as_often_as_asked() -> None:
    """A failed receive or acknowledge changes nothing."""
    partition = InMemoryQueue(clock=now)
    partition.publish([b"1"])
    partition.switches.fail("receive")
    with pytest.raises(BusError):
        partition.receive(1)

    assert len(partition.receive(1)) == 1
