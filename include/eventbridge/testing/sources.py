"""A log in memory, with switches for failures; it passes the contract suite of real logs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Literal
from uuid import uuid4

import pyarrow as pa

from eventbridge.errors import BusError, OffsetGapError
from eventbridge.fault_points import reach
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.tables import partition_of_key
from eventbridge.testing.messages import Headers, Message, block_of

#: The number of messages per block: small, so that tests get several blocks.
BLOCK_MESSAGES = 3


class Switches:
    """Calls that are to fail, by method name."""

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

    `switches.fail("read")` makes calls fail, `damage` single messages; `lose` makes gaps, `truncate` an older log,
    `replace` another log in its place, `add_partition` a partition that appears later.
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
        """Replace the log by a new, empty one, as if a bus's file was deleted and created again."""
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
        return min(self._held(partition), default=self._ends[partition])

    def end(self, partition: Partition) -> int:
        """Return the offset the next message will get."""
        self.switches.check("end")
        self._held(partition)
        return self._ends[partition]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition."""
        self.switches.check("ends")
        return {partition: self._ends[partition] for partition in self._messages}

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after `at` (the end if none is)."""
        self.switches.check("offset_at")
        later = (offset for offset, message in self._held(partition).items() if message.published_at >= at)
        return min(later, default=self._ends[partition])

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic (None: the first) and return the position of each."""
        topic = self._topics[0] if topic is None else topic
        partitions = [partition for partition in sorted(self._messages) if partition.topic == topic]
        if not partitions:
            raise BusError(f"topic {topic!r} is not open")
        reach("bus.publish")
        self.switches.check("publish")
        with self._turn:
            turns = count(sum(self._ends[partition] for partition in partitions))
            places = [
                self._append(
                    partitions[
                        next(turns) % len(partitions) if key is None else partition_of_key(key, len(partitions))
                    ],
                    body,
                )
                for body, key in records
            ]
        reach("bus.publish.done")
        return places

    def append(
        self, partition: Partition, body: bytes | None, key: bytes | None = None, headers: Headers | None = None
    ) -> int:
        """Append one message as other buses have them, including tombstones (no body); return its offset."""
        with self._turn:
            return self._append(partition, body, key, headers)[1]

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, a few as one block."""
        self.switches.check("read")
        held = self._held(partition)
        if end > self._ends[partition]:
            raise OffsetGapError(f"{partition} ends at {self._ends[partition]}, but {start} to {end} were requested")
        return self._blocks(held, partition, range(start, end))

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets recorded for a consumer group."""
        self.switches.check("committed")
        return dict(self._committed.get(group, {}))

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group; the last write wins."""
        for partition in offsets:
            self._held(partition)
        reach("bus.commit")
        self.switches.check("commit")
        self._committed.setdefault(group, {}).update(offsets)
        reach("bus.commit.done")

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _append(
        self, partition: Partition, body: bytes | None, key: bytes | None = None, headers: Headers | None = None
    ) -> tuple[Partition, int]:
        offset = self._ends[partition]
        at = max(self._clock(), self._times.get(partition, self._clock()))
        self._messages[partition][offset] = Message(offset, at, body, key, headers)
        self._ends[partition] = offset + 1
        self._times[partition] = at
        return partition, offset

    def _blocks(self, held: Mapping[int, Message], partition: Partition, offsets: range) -> Iterator[pa.RecordBatch]:
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
            if offset in held:
                waiting.append(held[offset])
        if waiting:
            yield block_of(waiting)

    def _held(self, partition: Partition) -> dict[int, Message]:
        try:
            return self._messages[partition]
        except KeyError:
            raise BusError(f"there is no partition {partition}") from None
