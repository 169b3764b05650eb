"""What every log source must do when it is published to: where a record goes, and that it is stored."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from contracts.log_sources import RESOLUTION, AnyLog, Clock

from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.testing.sources import messages_of


def test_a_published_message_is_read(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """A message comes back with its bytes, its position and the time the bus took it, whatever the bytes are."""
    bodies = [b"", b"\x00\xff", b'{"a": 1}', "Zürich".encode()]
    clock.move(0.123456)
    part = 0.123456 - 123456 % RESOLUTION[type(log)] / 1_000_000

    assert log.publish([(body, "a") for body in bodies]) == [(partition, offset) for offset in range(4)]
    read = list(messages_of(log.read(partition, 0, 4)))
    assert [message.body for message in read] == bodies
    assert [message.offset for message in read] == [0, 1, 2, 3]
    assert all(clock.took(message.published_at, part) for message in read)
    assert log.end(partition) == log.ends()[partition] == 4


def test_topics_and_partitions_do_not_mix(log: AnyLog) -> None:
    """A message is in the topic and partition that publish named, and in no other."""
    positions = log.publish([(b"1", "a"), (b"2", "b"), (b"3", "c")], "returns")
    positions += log.publish([(b"4", "a"), (b"5", "b"), (b"6", "c")])

    assert {partition.topic for partition, _ in positions} == {"orders", "returns"}
    found = {
        (partition, message.offset): message.body
        for partition in log.partitions()
        for message in messages_of(log.read(partition, 0, log.end(partition)))
    }
    assert found == dict(zip(positions, [b"1", b"2", b"3", b"4", b"5", b"6"], strict=True))


def test_a_key_keeps_its_partition_and_its_order(log: AnyLog) -> None:
    """All records of a key lie in one partition in the order they were published, in one call or in several."""
    keys = ["JFK", "EWR", "LGA", "x" * 1000, "", "\ud800", "Ω"]
    for number in range(5):
        log.publish([(f"{key!r}/{number}/{part}".encode(), key) for part in range(3) for key in keys])

    read = [
        (partition, message.body)
        for partition in log.partitions()
        for message in messages_of(log.read(partition, 0, log.end(partition)))
    ]
    for key in keys:
        mine = [(partition, body) for partition, body in read if (body or b"").startswith(f"{key!r}/".encode())]
        assert len({partition for partition, _ in mine}) == 1
        assert [body for _, body in mine] == [f"{key!r}/{n}/{p}".encode() for n in range(5) for p in range(3)]


def test_records_without_a_key_are_spread(log: AnyLog) -> None:
    """Records without a key fill the partitions evenly, also one by one."""
    log.publish([(b"x", None)] * 4)
    for _ in range(5):
        log.publish([(b"x", None)])

    assert [log.end(partition) for partition in log.partitions()] == [3, 3, 3, 0, 0, 0]


def test_publishing_nothing_is_harmless(log: AnyLog) -> None:
    """No records, no message."""
    assert log.publish([]) == []
    assert set(log.ends().values()) == {0}


def test_a_topic_that_is_not_open_is_refused(log: AnyLog) -> None:
    """Publishing to a topic the log does not have raises BusError and names it."""
    with pytest.raises(BusError, match="refunds"):
        log.publish([(b"x", None)], "refunds")


def test_two_publishers_at_once(log: AnyLog) -> None:
    """Two publishers get disjoint, dense offsets, and each message is stored at the acknowledged offset."""
    barrier = threading.Barrier(2)

    def run(name: str) -> dict[tuple[Partition, int], bytes]:
        barrier.wait()
        reported = {}
        for number in range(20):
            bodies = [f"{name}/{number}/{part}".encode() for part in range(10)]
            reported.update(zip(log.publish([(body, None) for body in bodies]), bodies, strict=True))
        return reported

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, ["left", "right"])

    assert not first.keys() & second.keys()
    ends = log.ends()
    assert sum(ends.values()) == 400
    found = {
        (partition, message.offset): message.body
        for partition in ends
        for message in messages_of(log.read(partition, 0, ends[partition]))
    }
    assert found == first | second
