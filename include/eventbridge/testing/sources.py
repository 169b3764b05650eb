"""A log in memory, with switches for what goes wrong; it passes the contract suite of the real ones."""

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
from eventbridge.model.queue import Queue
from eventbridge.sources.embedded.places import queue_of_key
from eventbridge.testing.messages import Headers, Message, block_of

#: How many messages a block of these fakes has: small, so that tests meet several.
BLOCK_MESSAGES = 3


class Switches:
    """Calls that shall fail, by the name of the method."""

    def __init__(self) -> None:
        self._failing: Counter[str] = Counter()

    def fail(self, method: str, times: int = 1) -> None:
        """Let the next `times` calls of a method raise BusError."""
        self._failing[method] += times

    def check(self, method: str) -> None:
        """Raise BusError if this call shall fail."""
        if self._failing[method]:
            self._failing[method] -= 1
            raise BusError(f"{method}: a failure that the test asked for")


class InMemoryLog:
    """A log source whose messages are gone with the object.

    `switches.fail("read")` makes calls fail, `damage` single messages; `lose` makes gaps, `truncate` an older log,
    `replace` another log in its place, `add_queue` a queue that appears later.
    """

    kind: Literal["log"] = "log"
    uri = "memory:"

    def __init__(self, *, topics: Sequence[str] = ("events",), queues: int = 1, clock: Callable[[], datetime]) -> None:
        self.switches = Switches()
        self._clock = clock
        self._topics = tuple(topics)
        self._turn = threading.RLock()
        self._messages: dict[Queue, dict[int, Message]] = {
            Queue(topic, "", queue_id): {} for topic in topics for queue_id in range(queues)
        }
        self._ends: Counter[Queue] = Counter(dict.fromkeys(self._messages, 0))
        self._times: dict[Queue, datetime] = {}
        self._damaged: set[tuple[Queue, int]] = set()
        self._committed: dict[str, dict[Queue, int]] = {}
        self._identity = str(uuid4())

    def add_queue(self, topic: str, broker: str = "") -> Queue:
        """Add an empty queue to a topic and return it."""
        with self._turn:
            queue = Queue(topic, broker, sum(known.topic == topic for known in self._messages))
            self._messages[queue] = {}
            self._ends[queue] = 0
            return queue

    def damage(self, queue: Queue, offset: int) -> None:
        """Let reading this message fail."""
        self._damaged.add((queue, offset))

    def repair(self) -> None:
        """Make every damaged message readable again."""
        self._damaged.clear()

    def lose(self, queue: Queue, start: int, end: int) -> None:
        """Drop the messages with start <= offset < end, as retention or compaction does."""
        with self._turn:
            for offset in range(start, end):
                self._messages[queue].pop(offset, None)

    def truncate(self, queue: Queue, end: int) -> None:
        """Make the log end at an earlier offset, as a bus restored from an old backup does."""
        with self._turn:
            self.lose(queue, end, self._ends[queue])
            self._ends[queue] = end

    def replace(self) -> None:
        """Put a new, empty log in its place, as a bus whose file was deleted and made again."""
        with self._turn:
            for queue in self._messages:
                self.truncate(queue, 0)
            self._committed.clear()
            self._times.clear()
            self._damaged.clear()
            self._identity = str(uuid4())

    def identities(self) -> Mapping[str, str]:
        """Return for each topic the id that this log was given when it was made."""
        self.switches.check("identities")
        return dict.fromkeys(self._topics, self._identity)

    def queues(self) -> Sequence[Queue]:
        """Return the queues that exist now."""
        self.switches.check("queues")
        return sorted(self._messages)

    def earliest(self, queue: Queue) -> int:
        """Return the first offset still held (the end offset if the queue is empty)."""
        self.switches.check("earliest")
        return min(self._held(queue), default=self._ends[queue])

    def end(self, queue: Queue) -> int:
        """Return the offset the next message will get."""
        self.switches.check("end")
        self._held(queue)
        return self._ends[queue]

    def ends(self) -> Mapping[Queue, int]:
        """Return the end offset of every queue."""
        self.switches.check("ends")
        return {queue: self._ends[queue] for queue in self._messages}

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message published at or after `at` (the end if none is)."""
        self.switches.check("offset_at")
        later = (offset for offset, message in self._held(queue).items() if message.published_at >= at)
        return min(later, default=self._ends[queue])

    def publish(self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None) -> list[tuple[Queue, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies."""
        topic = self._topics[0] if topic is None else topic
        queues = [queue for queue in sorted(self._messages) if queue.topic == topic]
        if not queues:
            raise BusError(f"topic {topic!r} is not open")
        reach("bus.publish")
        self.switches.check("publish")
        with self._turn:
            turns = count(sum(self._ends[queue] for queue in queues))
            places = [
                self._append(queues[next(turns) % len(queues) if key is None else queue_of_key(key, len(queues))], body)
                for body, key in records
            ]
        reach("bus.publish.done")
        return places

    def append(self, queue: Queue, body: bytes | None, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Append one message as other buses hold them, be it a tombstone (no body); return its offset."""
        with self._turn:
            return self._append(queue, body, key, headers)[1]

    def read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, a few as one block."""
        self.switches.check("read")
        held = self._held(queue)
        if end > self._ends[queue]:
            raise OffsetGapError(f"{queue} ends at {self._ends[queue]}, and {start} to {end} is wanted")
        return self._blocks(held, queue, range(start, end))

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets recorded for a consumer group."""
        self.switches.check("committed")
        return dict(self._committed.get(group, {}))

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group; the last one written counts."""
        for queue in offsets:
            self._held(queue)
        reach("bus.commit")
        self.switches.check("commit")
        self._committed.setdefault(group, {}).update(offsets)
        reach("bus.commit.done")

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _append(
        self, queue: Queue, body: bytes | None, key: bytes | None = None, headers: Headers | None = None
    ) -> tuple[Queue, int]:
        offset = self._ends[queue]
        at = max(self._clock(), self._times.get(queue, self._clock()))
        self._messages[queue][offset] = Message(offset, at, body, key, headers)
        self._ends[queue] = offset + 1
        self._times[queue] = at
        return queue, offset

    def _blocks(self, held: Mapping[int, Message], queue: Queue, offsets: range) -> Iterator[pa.RecordBatch]:
        if offsets:
            reach("bus.read")
        waiting: list[Message] = []
        for offset in offsets:
            damaged = (queue, offset) in self._damaged
            if waiting and (damaged or len(waiting) == BLOCK_MESSAGES):
                yield block_of(waiting)
                waiting = []
            if damaged:
                raise BusError(f"{queue}: message {offset} cannot be read, as the test asked for")
            if offset in held:
                waiting.append(held[offset])
        if waiting:
            yield block_of(waiting)

    def _held(self, queue: Queue) -> dict[int, Message]:
        try:
            return self._messages[queue]
        except KeyError:
            raise BusError(f"there is no queue {queue}") from None
