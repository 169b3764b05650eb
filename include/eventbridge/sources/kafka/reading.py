"""Reads exact ranges of Kafka partitions, as Arrow blocks, without joining a group."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from eventbridge import fault_points
from eventbridge.clients.kafka.client import QUIET, ClientErrors, bus_error
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.fetched import MAX_BYTES, FetchedMessages
from eventbridge.sources.messages import message_block

#: A block ends after this many messages or this many bytes of bodies, whichever comes first.
BLOCK_MESSAGES: Final = 5_000
BLOCK_BYTES: Final = 4 << 20

#: The maximum time that the brokers may be silent while a range is read, before BusError is raised.
SILENCE_SECONDS: Final = 30.0

#: The time that one poll waits. A fatal error of the client or an exceeded SILENCE_SECONDS is noticed within this time.
_WAIT_SECONDS: Final = 0.5

#: Valid times of messages are within `datetime`'s limits, less a year, because ages are added to them.
_FIRST_MILLISECOND: Final = int(datetime(2, 1, 1, tzinfo=UTC).timestamp()) * 1_000
_END_MILLISECOND: Final = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp()) * 1_000

#: Settings of a client that reads assigned partitions, without a group.
READING: Final[Mapping[str, Any]] = {
    "group.id": "eventbridge-reads-by-range",  # required by the client, which joins no group and commits nothing
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
    # By default a client whose queue was full fetches again after a second, and the reader would wait that long.
    "fetch.queue.backoff.ms": 5,
    "max.partition.fetch.bytes": 4 << 20,
    # Messages fetched beyond a range's end are discarded; a block is read while the next two are fetched.
    "queued.max.messages.kbytes": 8 << 10,
}


@dataclass
class _Range:
    """The range that is being read, with the fetched blocks that were not returned yet and the last one returned.

    `fetched` contains messages that were not examined yet; once the range is complete, those that follow it.
    """

    partition: Partition
    end: int
    fetched: list[Message] = field(default_factory=list)
    is_over: bool = False
    is_log_over: bool = False  # the end was reported by the client, which reports it once
    blocks: deque[pa.RecordBatch] = field(default_factory=deque)
    last: pa.RecordBatch | None = None

    def is_continued_by(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a range is the rest of this range, from inside its last block or right after it."""
        if self.last is None or (self.partition, self.end) != (partition, end):
            return False
        return bool(self.last["offset"][0].as_py() < start <= self.last["offset"][-1].as_py() + 1)

    def is_before(self, partition: Partition, start: int) -> bool:
        """Return whether the given range begins where this one, which was read to its end, left the client."""
        return (self.partition, self.end) == (partition, start) and self.is_over and not self.is_log_over

    def rest_from(self, start: int) -> pa.RecordBatch | None:
        """Return the part of the last block that begins at an offset, or None if empty."""
        if self.last is None or self.last["offset"][-1].as_py() < start:
            return None
        taken = int(np.searchsorted(self.last["offset"].to_numpy(), start))
        return self.last.slice(taken)


class RangeConsumer:
    """A consumer that reads one range at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._servers = str(settings["bootstrap.servers"])
        self._client_errors = ClientErrors()
        self._range: _Range | None = None
        try:
            self._consumer = Consumer({**settings, **QUIET, **READING, "error_cb": self._client_errors})
        except KafkaException as error:
            raise bus_error(self._servers, "cannot open a client", error.args[0]) from None

    def blocks(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition with start <= offset < end that still exist.

        If the last offsets hold no message, the range ends when the client reports the end of the partition. A reader
        that stopped inside a block and resumes at that point, or continues after the range, reuses the fetched
        messages.
        """
        if start >= end:
            return
        fault_points.reach("bus.read")
        if self._range is None or not self._range.is_continued_by(partition, start, end):
            self._range = self._begin(partition, start, end)
        reading = self._range
        if (rest := reading.rest_from(start)) is not None:
            yield rest
        while reading.blocks or not reading.is_over:
            if not reading.blocks:
                self._fetch(reading, f"cannot read {partition.topic}/{partition.partition_id} from {start} to {end}")
            if reading.blocks:
                reading.last = reading.blocks.popleft()
                yield reading.last

    def _begin(self, partition: Partition, start: int, end: int) -> _Range:
        if self._range is not None and self._range.is_before(partition, start) and not self._range.blocks:
            return _Range(partition, end, self._range.fetched)
        self._consumer.assign([TopicPartition(partition.topic, partition.partition_id, start)])
        return _Range(partition, end)

    def _fetch(self, reading: _Range, doing: str) -> None:
        """Fetch the next messages of a range: one block, or fewer at its end."""
        found: list[Message] = []
        size = 0
        self._range = None  # stays None on an error, because the messages fetched so far would otherwise be skipped
        while not reading.is_over and size < BLOCK_BYTES and len(found) < BLOCK_MESSAGES:
            more = self._select_in_range(reading, doing)
            found += more
            size += sum(map(len, more))
        self._range = reading
        reading.blocks.extend(as_blocks(found))

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._consumer.close()

    def _next(self, doing: str) -> list[Message]:
        """Wait for one message, and return all that are available. Raises BusError after SILENCE_SECONDS."""
        silence_ends = time.monotonic() + SILENCE_SECONDS
        while (first := self._consumer.poll(_WAIT_SECONDS)) is None:
            if self._client_errors.fatal is not None:
                raise bus_error(self._servers, doing, self._client_errors.fatal)
            if time.monotonic() > silence_ends:
                raise bus_error(self._servers, doing, self._client_errors.instead_of(KafkaError(KafkaError._TIMED_OUT)))
        return [first, *self._consumer.consume(BLOCK_MESSAGES, 0)]

    def _select_in_range(self, reading: _Range, doing: str) -> list[Message]:
        """Return the messages that belong to a range, and record in it whether it is complete."""
        messages = reading.fetched or self._next(doing)
        reading.fetched = []
        found: list[Message] = []
        for number, message in enumerate(messages):
            error = message.error()
            offset = message.offset()
            if error is not None:
                refuse_final(self._servers, error, doing)
                if error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= reading.end:
                    reading.is_over = reading.is_log_over = True
                    return found
            elif offset is not None and offset >= reading.end:
                reading.is_over, reading.fetched = True, messages[number:]
                return found
            else:
                found.append(message)
                if offset == reading.end - 1:
                    reading.is_over, reading.fetched = True, messages[number + 1 :]
                    return found
        return found


def refuse_final(servers: str, error: KafkaError, doing: str) -> None:
    """Raise BusError for a fatal error; the end of a partition and transient errors are not fatal."""
    if error.code() == KafkaError._PARTITION_EOF or (error.retriable() and not error.fatal()):
        return
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        why = "retention has deleted the first offset of the range in the meantime"
        raise BusError(f"Kafka at {servers}: {doing}: {why}. Try again")
    raise bus_error(servers, doing, error)


def as_blocks(messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
    """Yield messages as blocks of `MESSAGES`."""
    first, size = 0, 0
    for index, message in enumerate(messages, start=1):
        size += len(message)
        if size >= BLOCK_BYTES or index == len(messages):
            yield _block(messages[first:index])
            first, size = index, 0


def _block(messages: Sequence[Message]) -> pa.RecordBatch:
    headers = [message.headers() for message in messages]
    return message_block(
        [message.offset() for message in messages],
        [_microseconds(message) for message in messages],
        [message.value() for message in messages],
        [message.key() for message in messages],
        headers if any(headers) else None,
    )


def _microseconds(message: Message) -> int:
    kind, milliseconds = message.timestamp()
    # Messages of clients older than Kafka 0.10 have no time. Brokers accept any number, even in a wrong unit; a number
    # outside the valid times counts as no time.
    is_a_time = kind != TIMESTAMP_NOT_AVAILABLE and _FIRST_MILLISECOND <= milliseconds < _END_MILLISECOND
    return milliseconds * 1_000 if is_a_time else 0


#: The maximum time by which brokers delay the response to a fetch without messages (`fetch.wait.max.ms`).
_FETCH_WAIT_MS: Final = 500
_DOING: Final = "cannot follow its topics"


class PartitionFollower:
    """A consumer of partitions that begins at given offsets, without a group; only one thread at a time may use it."""

    def __init__(self, settings: Mapping[str, Any], positions: Mapping[Partition, int]) -> None:
        self._servers = str(settings["bootstrap.servers"])
        self._client_errors = ClientErrors()
        self._fetched: dict[Partition, FetchedMessages[Message]] = {
            partition: FetchedMessages(at, at) for partition, at in positions.items()
        }
        own = {"fetch.wait.max.ms": _FETCH_WAIT_MS, "error_cb": self._client_errors}
        try:
            self._consumer = Consumer({**settings, **QUIET, **READING, **own})
            self._consumer.assign(
                [TopicPartition(partition.topic, partition.partition_id, at) for partition, at in positions.items()]
            )
        except KafkaException as error:
            raise bus_error(self._servers, "cannot open a client", error.args[0]) from None

    def ends(self) -> dict[Partition, int]:
        """Return the offset up to which each partition was fetched; never waits.

        The client reports the end of a partition, so offsets without a message count as fetched too.
        """
        while self._size < MAX_BYTES and (found := self._consumer.consume(BLOCK_MESSAGES, 0)):
            for message in found:
                self._take(message)
        if self._client_errors.fatal is not None:
            raise bus_error(self._servers, _DOING, self._client_errors.fatal)
        return {partition: fetched.end for partition, fetched in self._fetched.items()}

    def holds(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a whole range was fetched and is still cached."""
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
        assert offset is not None, "each message of a partition has an offset"
        if error is None:
            fetched.put(offset, len(message), message)
        else:
            fetched.reach(offset)
