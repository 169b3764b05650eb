"""What holds for a log on a real broker of each kind: blocks, recreated topics, and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from contracts.log_sources import offsets
from services.brokers import Broker

from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.rocketmq.log import RocketmqLog

BrokerLog = KafkaLog | RocketmqLog


@pytest.fixture
def log(broker: Broker) -> Iterator[BrokerLog]:
    """Open a topic of one partition that was made just now."""
    broker.make_topics("flights")
    with closing(broker.open("flights")) as log:
        yield log


@pytest.fixture
def partition(log: BrokerLog) -> Partition:
    """Return the topic's partition."""
    (partition,) = log.partitions()
    return partition


def test_a_reader_that_stops_within_a_block_continues_there(log: BrokerLog, partition: Partition) -> None:
    """As the buffer stage does at the end of a file: what was fetched is not fetched again, and none is passed over."""
    log.publish([(str(number).encode() * 100, None) for number in range(20_000)])
    seen: list[int] = []
    start = 0
    while start < 20_000:
        with closing(log.read(partition, start, 20_000)) as blocks:  # type: ignore[type-var]
            block = next(blocks)
        taken = block.slice(0, max(1, block.num_rows // 2))["offset"].to_pylist()
        seen += taken
        start = taken[-1] + 1

    assert seen == list(range(20_000))


def wait_for(log: BrokerLog, partition: Partition, end: int) -> None:
    """Look at a log that follows until it has fetched so far."""
    until = time.monotonic() + 30
    while True:
        with suppress(BusError):  # its only broker may be away
            if log.ends()[partition] >= end:
                return
        assert time.monotonic() < until, f"offset {end} never came"
        threading.Event().wait(0.003)


def test_a_followed_log_gives_the_messages_of_its_ranges(log: BrokerLog, partition: Partition) -> None:
    """From where it begins on, as it comes, and whether or not its reader stops within a block."""
    log.publish([(b"old", None)] * 3)
    log.follow({partition: 1})
    wait_for(log, partition, 3)
    assert (log.earliest(partition), offsets(log, partition, 1, 3)) == (0, [1, 2])
    log.publish([(str(number).encode() * 20, None) for number in range(3_000)])
    seen: list[int] = []
    start = 3
    while start < 3_003:
        wait_for(log, partition, start + 1)
        with closing(log.read(partition, start, log.ends()[partition])) as blocks:  # type: ignore[type-var]
            block = next(blocks)
        taken = block.slice(0, max(1, block.num_rows // 2))["offset"].to_pylist()
        seen += taken
        start = taken[-1] + 1

    assert seen == list(range(3, 3_003))
    assert offsets(log, partition, 0, 2) == [0, 1], "what lies before is read as ever"


def test_a_recreated_topic_is_shorter(broker: Broker, log: BrokerLog, partition: Partition) -> None:
    """A range of the old one is refused by the new one, which has another identity where topics have one."""
    log.publish([(b"1", None)] * 3)
    was = log.identities()
    broker.make_topics("flights")

    assert (log.identities() != was) == bool(was) == (broker.kind == "kafka")
    with pytest.raises(
        OffsetGapError, match=r"0 to 3 of flights/(broker-a/)?0 were requested, but the partition ends at 0"
    ):
        log.read(partition, 0, 3)


def test_reading_continues_after_a_restart(broker: Broker, log: BrokerLog, partition: Partition) -> None:
    """Messages published before the broker was killed are kept, and the same client reads, follows and publishes on."""
    log.publish([(b"1", None)])
    assert offsets(log, partition, 0, 1) == [0]
    log.follow({partition: 0})
    wait_for(log, partition, 1)
    broker.server.kill()
    broker.server.start()
    log.publish([(b"2", None)])
    wait_for(log, partition, 2)

    assert offsets(log, partition, 0, 2) == [0, 1]
