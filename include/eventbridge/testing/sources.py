"""Provides a log and a queue in memory, with switches for failures; each passes the contract suite of its kind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import pyarrow as pa

from eventbridge.errors import BusError, OffsetGapError
from eventbridge.fault_points import reach
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.tables import partition_of_key
from eventbridge.sources.messages import RECEIVED, message_block

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Headers = Sequence[tuple[str, bytes | None]]


class Message(NamedTuple):
    """One row of a message block, as Python values; `headers` are (name, value)."""

    offset: int
    published_at: datetime
    body: bytes | None
    key: bytes | None = None
    headers: Headers | None = None


def messages_of(blocks: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Yield the messages in the blocks that a log source's `read` yields, one by one."""
    for block in blocks:
        for row in block.to_pylist():
            headers = row["headers"]
            listed = None if headers is None else [(each["name"], each["value"]) for each in headers]
            yield Message(row["offset"], row["published_at"], row["body"], row["key"], listed)


def block_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as one block of `MESSAGES`."""
    return message_block(
        [message.offset for message in messages],
        [(message.published_at - _EPOCH) // _MICROSECOND for message in messages],
        [message.body for message in messages],
        [message.key for message in messages],
        [message.headers for message in messages],
    )


#: The number of messages per block: small, so that tests get several blocks.
BLOCK_MESSAGES = 3


class Switches:
    """Records which calls must fail, by method name."""

    def __init__(self) -> None:
        self._failing: Counter[str] = Counter()

    def fail(self, method: str, times: int = 1) -> None:
        """Make the next `times` calls of a method raise BusError."""
        self._failing[method] += times

    def check(self, method: str) -> None:
        """Raise BusError if this call is to fail."""
        if self._failing[method]:
            self._failing[method] -= 1
            raise BusError(f"{method}: a failure injected by the test")


class InMemoryLog:
    """A log source that keeps its messages in memory.

    `switches.fail("read")` makes calls fail, and `damage` makes messages unreadable. `lose` makes gaps, `truncate` ends
    the log earlier, `replace` puts another log in its place, and `add_partition` adds a partition later.
    """

    kind: Literal["log"] = "log"
    uri = "memory:"

    def __init__(
        self, *, topics: Sequence[str] = ("events",), partitions: int = 1, clock: Callable[[], datetime]
    ) -> None:
        self.switches = Switches()
        self._clock = clock
        self._topics = tuple(topics)
        self._turn = threading.RLock()
        self._messages: dict[Partition, dict[int, Message]] = {
            Partition(topic, "", partition_id): {} for topic in topics for partition_id in range(partitions)
        }
        self._ends: Counter[Partition] = Counter(dict.fromkeys(self._messages, 0))
        self._times: dict[Partition, datetime] = {}
        self._damaged: set[tuple[Partition, int]] = set()
        self._committed: dict[str, dict[Partition, int]] = {}
        self._identity = str(uuid4())

    def add_partition(self, topic: str, broker: str = "") -> Partition:
        """Add an empty partition to a topic and return it."""
        with self._turn:
            partition = Partition(topic, broker, sum(known.topic == topic for known in self._messages))
            self._messages[partition] = {}
            self._ends[partition] = 0
            return partition

    def damage(self, partition: Partition, offset: int) -> None:
        """Make reading this message fail."""
        self._damaged.add((partition, offset))

    def repair(self) -> None:
        """Make every damaged message readable again."""
        self._damaged.clear()

    def lose(self, partition: Partition, start: int, end: int) -> None:
        """Drop the messages with start <= offset < end, as retention or compaction does."""
        with self._turn:
            for offset in range(start, end):
                self._messages[partition].pop(offset, None)

    def truncate(self, partition: Partition, end: int) -> None:
        """Make the log end at an earlier offset, as a bus restored from an old backup does."""
        with self._turn:
            self.lose(partition, end, self._ends[partition])
            self._ends[partition] = end

    def replace(self) -> None:
        """Replace the log with a new, empty one, as if a bus's file was deleted and created again."""
        with self._turn:
            for partition in self._messages:
                self.truncate(partition, 0)
            self._committed.clear()
            self._times.clear()
            self._damaged.clear()
            self._identity = str(uuid4())

    def identities(self) -> Mapping[str, str]:
        """Return the id of this log, for each topic."""
        self.switches.check("identities")
        return dict.fromkeys(self._topics, self._identity)

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that exist now."""
        self.switches.check("partitions")
        return sorted(self._messages)

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if the partition is empty)."""
        self.switches.check("earliest")
        return min(self._messages_of(partition), default=self._ends[partition])

    def end(self, partition: Partition) -> int:
        """Return the offset the next message will get."""
        self.switches.check("end")
        self._messages_of(partition)
        return self._ends[partition]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition."""
        self.switches.check("ends")
        return {partition: self._ends[partition] for partition in self._messages}

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after `at` (the end if none is)."""
        self.switches.check("offset_at")
        later = (offset for offset, message in self._messages_of(partition).items() if message.published_at >= at)
        return min(later, default=self._ends[partition])

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each."""
        topic = self._topics[0] if topic is None else topic
        partitions = [partition for partition in sorted(self._messages) if partition.topic == topic]
        if not partitions:
            raise BusError(f"topic {topic!r} is not open")
        reach("bus.publish")
        self.switches.check("publish")
        with self._turn:
            turns = count(sum(self._ends[partition] for partition in partitions))
            positions = [
                self._append(
                    partitions[
                        next(turns) % len(partitions) if key is None else partition_of_key(key, len(partitions))
                    ],
                    body,
                )
                for body, key in records
            ]
        reach("bus.publish.done")
        return positions

    def append(
        self, partition: Partition, body: bytes | None, key: bytes | None = None, headers: Headers | None = None
    ) -> int:
        """Append one message as other buses have them, including tombstones (no body); return its offset."""
        with self._turn:
            return self._append(partition, body, key, headers)[1]

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, in blocks of a few messages."""
        self.switches.check("read")
        messages = self._messages_of(partition)
        if end > self._ends[partition]:
            raise OffsetGapError(f"{partition} ends at {self._ends[partition]}, but {start} to {end} were requested")
        return self._blocks(messages, partition, range(start, end))

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets recorded for a consumer group."""
        self.switches.check("committed")
        return dict(self._committed.get(group, {}))

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group; the last write wins."""
        for partition in offsets:
            self._messages_of(partition)
        reach("bus.commit")
        self.switches.check("commit")
        self._committed.setdefault(group, {}).update(offsets)
        reach("bus.commit.done")

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""

    def _append(
        self, partition: Partition, body: bytes | None, key: bytes | None = None, headers: Headers | None = None
    ) -> tuple[Partition, int]:
        offset = self._ends[partition]
        at = max(self._clock(), self._times.get(partition, self._clock()))
        self._messages[partition][offset] = Message(offset, at, body, key, headers)
        self._ends[partition] = offset + 1
        self._times[partition] = at
        return partition, offset

    def _blocks(
        self, messages: Mapping[int, Message], partition: Partition, offsets: range
    ) -> Iterator[pa.RecordBatch]:
        if offsets:
            reach("bus.read")
        waiting: list[Message] = []
        for offset in offsets:
            damaged = (partition, offset) in self._damaged
            if waiting and (damaged or len(waiting) == BLOCK_MESSAGES):
                yield block_of(waiting)
                waiting = []
            if damaged:
                raise BusError(f"{partition}: message {offset} cannot be read: a failure injected by the test")
            if offset in messages:
                waiting.append(messages[offset])
        if waiting:
            yield block_of(waiting)

    def _messages_of(self, partition: Partition) -> dict[int, Message]:
        try:
            return self._messages[partition]
        except KeyError:
            raise BusError(f"there is no partition {partition}") from None


class InMemoryQueue:
    """A queue source that keeps its messages in memory; `switches.fail("receive")` makes calls fail.

    A message that is received comes again after `invisible`, under a new receipt, unless it is acknowledged.
    """

    kind: Literal["queue"] = "queue"
    uri = "memory:"

    def __init__(self, *, clock: Callable[[], datetime], invisible: timedelta = timedelta(seconds=30)) -> None:
        self.switches = Switches()
        self._clock = clock
        self._invisible = invisible
        self._turn = threading.Lock()
        self._numbers = count()
        self._receipt_numbers = count()
        self._waiting: dict[int, Message] = {}
        self._visible_at: dict[int, datetime] = {}
        self._receipts: dict[str, int] = {}

    @property
    def visibility_timeout(self) -> float:
        """Return the number of seconds for which a received message is invisible to other receivers."""
        return self._invisible.total_seconds()

    def publish(self, bodies: Sequence[bytes]) -> list[str]:
        """Append messages and return their ids."""
        reach("bus.publish")
        self.switches.check("publish")
        with self._turn:
            now = self._clock()
            sent = [(number, body) for body, number in zip(bodies, self._numbers, strict=False)]
            for number, body in sent:
                self._waiting[number] = Message(number, now, body)
        reach("bus.publish.done")
        return [f"events-{number}" for number, _ in sent]

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` visible messages as one block; they are invisible to others for now."""
        reach("bus.receive")
        self.switches.check("receive")
        with self._turn:
            now = self._clock()
            visible = [number for number in self._waiting if self._visible_at.get(number, now) <= now][:at_most]
            return pa.RecordBatch.from_pylist([self._hand_out(number, now) for number in visible], schema=RECEIVED)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages; expired receipts are ignored."""
        reach("bus.acknowledge")
        self.switches.check("acknowledge")
        with self._turn:
            for receipt in receipts:
                number = self._receipts.pop(receipt, None)
                if number is not None and self._visible_at[number] > self._clock():
                    del self._waiting[number]
        reach("bus.acknowledge.done")

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, under new receipts; expired ones are ignored."""
        self.switches.check("extend")
        with self._turn:
            return [self._extended(receipt) for receipt in receipts]

    def waiting(self) -> int:
        """Return the number of unacknowledged messages."""
        self.switches.check("waiting")
        return len(self._waiting)

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""

    def _extended(self, receipt: str) -> str:
        number = self._receipts.get(receipt)
        if number is None or self._visible_at[number] <= self._clock():
            return receipt
        del self._receipts[receipt]
        self._visible_at[number] = self._clock() + self._invisible
        again = f"{number}-{next(self._receipt_numbers)}"
        self._receipts[again] = number
        return again

    def _hand_out(self, number: int, now: datetime) -> dict[str, Any]:
        self._receipts = {receipt: of for receipt, of in self._receipts.items() if of != number}
        self._visible_at[number] = now + self._invisible
        receipt = f"{number}-{next(self._receipt_numbers)}"
        self._receipts[receipt] = number
        message = self._waiting[number]
        return {
            "receipt": receipt,
            "message_id": f"events-{number}",
            "published_at": message.published_at,
            "body": message.body,
        }
