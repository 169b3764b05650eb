"""Follows partitions of Kafka: the client's threads fetch new messages, so that polling causes no requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from eventbridge.clients.kafka.client import QUIET, ClientErrors, bus_error
from eventbridge.model.partition import Partition
from eventbridge.sources.fetched import MOST_BYTES, FetchedMessages
from eventbridge.sources.kafka.reading import BLOCK_MESSAGES, READING, as_blocks, refuse_final

#: How long brokers hold a fetch that finds nothing (`fetch.wait.max.ms`).
_FETCH_WAIT_MS: Final = 500
_DOING: Final = "cannot follow its topics"


class PartitionFollower:
    """A consumer of partitions from given offsets on, without a group; only one thread at a time may use it."""

    def __init__(self, settings: Mapping[str, Any], positions: Mapping[Partition, int]) -> None:
        self._servers = str(settings["bootstrap.servers"])
        self._trouble = ClientErrors()
        self._fetched: dict[Partition, FetchedMessages[Message]] = {
            partition: FetchedMessages(at, at) for partition, at in positions.items()
        }
        own = {"fetch.wait.max.ms": _FETCH_WAIT_MS, "error_cb": self._trouble}
        try:
            self._consumer = Consumer({**settings, **QUIET, **READING, **own})
            self._consumer.assign(
                [TopicPartition(partition.topic, partition.partition_id, at) for partition, at in positions.items()]
            )
        except KafkaException as error:
            raise bus_error(self._servers, "cannot open a client", error.args[0]) from None

    def ends(self) -> dict[Partition, int]:
        """Return the offset up to which each partition was fetched; never waits.

        The client reports the end of a partition, so that offsets without a message count as fetched.
        """
        while self._size < MOST_BYTES and (found := self._consumer.consume(BLOCK_MESSAGES, 0)):
            for message in found:
                self._take(message)
        if self._trouble.final is not None:
            raise bus_error(self._servers, _DOING, self._trouble.final)
        return {partition: fetched.end for partition, fetched in self._fetched.items()}

    def holds(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a whole range was fetched and is still kept."""
        return partition in self._fetched and self._fetched[partition].holds(start, end)

    def blocks(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the fetched messages of a range, and drop those before it."""
        yield from as_blocks(self._fetched[partition].take(start, end))

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._consumer.close()

    @property
    def _size(self) -> int:
        return sum(fetched.size for fetched in self._fetched.values())

    def _take(self, message: Message) -> None:
        error, offset = message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            refuse_final(self._servers, error, _DOING)
            return
        fetched = self._fetched[Partition(message.topic() or "", "", message.partition() or 0)]
        assert offset is not None, "what comes of a partition says where"
        if error is None:
            fetched.put(offset, len(message), message)
        else:
            fetched.reach(offset)
