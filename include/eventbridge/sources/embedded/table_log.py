"""The embedded bus over its tables: which queue takes a message, what is read, and what a trim drops."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Self

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.model.queue import Queue
from eventbridge.sources.embedded.places import microseconds, queue_of_key
from eventbridge.sources.embedded.tables import End, Message, Tables, Writer
from eventbridge.sources.messages import message_block

#: A trim lets publishers in after each of these.
TRIM_MESSAGES = 10_000

#: What a bus may be called.
_BUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class TableLog:
    """A log source whose messages lie in tables; its topics are made if they are not there.

    Sees and makes the topics it is given and no others. `queues` is how many queues a topic gets when it is made;
    a topic that is there keeps what it has.
    Threads may share an instance; a process forked from one must open its own.
    Raises BusError with a remedy where the tables cannot be opened, read or written.
    """

    kind: Literal["log"] = "log"

    def __init__(
        self,
        bus: str,
        open_tables: Callable[[], Tables],
        *,
        topics: Sequence[str],
        queues: int,
        clock: Callable[[], datetime],
    ) -> None:
        if not _BUS_NAME.fullmatch(bus):
            raise UserError(f"{bus!r} cannot name a bus: use letters, digits, '.', '_' and '-'")
        if not topics or queues < 1:
            raise UserError(f"bus {bus}: a bus has at least one topic, and a topic at least one queue")
        self.bus = bus
        self._topics = tuple(dict.fromkeys(topics))
        self._clock = clock
        self._tables = open_tables()
        try:
            self._numbers = self._find_queues(queues)
        except BaseException:
            self._tables.close()
            raise
        self._queues = {number: queue for queue, number in self._numbers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the tables."""
        self._tables.close()

    @property
    def uri(self) -> str:
        """Return where the tables lie: the URI of a file or of a database; never user and password."""
        return self._tables.uri

    def identities(self) -> Mapping[str, str]:
        """Return for each topic the UUID that the bus was given when it was made; a copy of it has the same."""
        return dict.fromkeys(self._topics, self._tables.identity)

    def queues(self) -> Sequence[Queue]:
        """Return the queues of the topics, in order of topic and queue id."""
        return sorted(self._numbers)

    def earliest(self, queue: Queue) -> int:
        """Return the first offset still held (the end offset if the queue is empty)."""
        return self._tables.bounds(self._number(queue))[0]

    def end(self, queue: Queue) -> int:
        """Return the offset the next message will get."""
        return self._tables.bounds(self._number(queue))[1]

    def ends(self) -> Mapping[Queue, int]:
        """Return the end offset of every queue, by one short query: cheap enough to ask several times a second."""
        return {self._queues[number]: end for number, end in self._tables.ends() if number in self._queues}

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""
        with self._tables.snapshot():  # a trim in the middle of the search would take away what it looks at
            return self._first_since(self._number(queue), microseconds(at))

    def publish(self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None) -> list[tuple[Queue, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies.

        All of them are durable when this returns, and none of them is there if it raises before its commit.
        Records of one key go to one queue, in order; records without one take turns.
        A message's time is never before that of its predecessor in the queue, whatever the clock does.
        """
        topic = self._topics[0] if topic is None else topic
        queues = [queue for queue in self.queues() if queue.topic == topic]
        if not queues:
            raise BusError(f"{self._tables.name}: topic {topic!r} is not open; open are {', '.join(self._topics)}")
        fault_points.reach("bus.publish")
        with self._tables.writing() as writer:
            places = self._append(writer, queues, records)
            fault_points.reach("bus.publish.written")
        fault_points.reach("bus.publish.done")
        return places

    def read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, a page as one block of `MESSAGES`.

        An offset that is in no block is a gap: retention has dropped it. Keys are not kept, and there are no headers.
        Raises OffsetGapError if `end` lies beyond the end of the queue: this is not the log it was planned on.
        """
        log_end, tables = self.end(queue), self._tables
        if end > log_end:
            raise OffsetGapError(
                f"{tables.name}: offsets {start} to {end} of {queue.topic}/{queue.queue_id} are wanted, and it ends at "
                f"{log_end}: the bus was replaced by an older or empty one. Put the right {tables.place} back"
            )
        return (message_block(*zip(*page, strict=True)) for page in self.pages(queue, start, end))

    def pages(self, queue: Queue, start: int, end: int) -> Generator[Sequence[tuple[int, int, bytes]], None, None]:
        """Yield offset, time and body of what `read` gives, a page at a time; `end` is not looked at."""
        number = self._number(queue)
        while start < end:
            fault_points.reach("bus.read")
            page = self._tables.page(number, start, end)
            if not page:
                return
            yield page
            start = page[-1][0] + 1

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets recorded for a consumer group, for the queues of the topics."""
        found = self._tables.committed(group)
        return {self._queues[number]: offset for number, offset in found if number in self._queues}

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group, durably; the last one written counts, be it lower or higher."""
        now = microseconds(self._clock())
        of_number = {self._number(queue): offset for queue, offset in offsets.items()}
        fault_points.reach("bus.commit")
        with self._tables.writing() as writer:
            writer.commit_offsets(group, of_number, now)
        fault_points.reach("bus.commit.done")

    def trim(self, before: datetime, keep: Mapping[Queue, int] | None = None) -> int:
        """Drop the messages of the topics that were published before the aware time `before`; return how many.

        Of a queue in `keep` none from that offset on. Read or not: offsets that a group has not read become gaps.
        A file keeps its size and uses the room again.
        """
        kept = {self._number(queue): offset for queue, offset in (keep or {}).items()}
        return sum(self._trim_queue(number, microseconds(before), kept.get(number)) for number in self._queues)

    def _find_queues(self, queues: int) -> dict[Queue, int]:
        found = self._select_queues()
        missing = [topic for topic in self._topics if topic not in {queue.topic for queue in found}]
        if not missing:
            return found
        with self._tables.writing() as writer:
            writer.lock_bus()  # or two that ask for different numbers of queues would both have their way
            made = {queue.topic for queue in self._select_queues()}  # by another process meanwhile
            writer.make_queues((topic, each) for topic in missing if topic not in made for each in range(queues))
        return self._select_queues()

    def _select_queues(self) -> dict[Queue, int]:
        found = self._tables.queues()
        return {Queue(topic, "", queue_id): number for topic, queue_id, number in found if topic in self._topics}

    def _append(
        self, writer: Writer, queues: Sequence[Queue], records: Sequence[tuple[bytes, str | None]]
    ) -> list[tuple[Queue, int]]:
        before = writer.lock_ends([self._numbers[queue] for queue in queues])
        now = microseconds(self._clock())
        ends = {queue: before[self._numbers[queue]].offset for queue in queues}
        times = {queue: max(now, before[self._numbers[queue]].published_at) for queue in queues}
        places = _places(queues, ends, [key for _, key in records])
        writer.append(
            Message(self._numbers[queue], offset, times[queue], body)
            for (queue, offset), (body, _) in zip(places, records, strict=True)
        )
        moved = {queue for queue, _ in places}
        writer.move_ends({self._numbers[queue]: End(ends[queue], times[queue]) for queue in moved})
        return places

    def _trim_queue(self, number: int, before: int, kept: int | None) -> int:
        dropped = 0
        while True:
            fault_points.reach("bus.trim")
            with self._tables.writing() as writer:
                writer.lock_queue(number)
                first, end = self._tables.bounds(number)
                since = self._first_since(number, before)
                since = since if kept is None else max(first, min(since, kept))
                keep = min(since, first + TRIM_MESSAGES)
                count = writer.drop(number, first, keep)
            fault_points.reach("bus.trim.done")
            dropped += count
            if keep == end or keep < first + TRIM_MESSAGES:
                return dropped

    def _first_since(self, number: int, at: int) -> int:
        first, end = self._tables.bounds(number)
        held = range(first, end)
        return first + bisect_left(held, at, key=lambda offset: self._tables.published_at(number, offset))

    def _number(self, queue: Queue) -> int:
        try:
            return self._numbers[queue]
        except KeyError:
            where = f"{queue.topic}/{queue.queue_id}"
            raise BusError(f"{self._tables.name}: there is no queue {where} among those open") from None


def _places(queues: Sequence[Queue], ends: dict[Queue, int], keys: Sequence[str | None]) -> list[tuple[Queue, int]]:
    """Return which queue and offset each record gets, by its key or in turn, and move `ends` on."""
    turn = sum(ends.values())
    places: list[tuple[Queue, int]] = []
    for key in keys:
        if key is None:
            queue, turn = queues[turn % len(queues)], turn + 1
        else:
            queue = queues[queue_of_key(key, len(queues))]
        places.append((queue, ends[queue]))
        ends[queue] += 1
    return places
