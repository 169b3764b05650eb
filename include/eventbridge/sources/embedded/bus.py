"""The embedded bus: a durable log for one machine, one SQLite file a bus.

Any number of processes may publish and read at once.
What `publish` has returned survives kill -9 and loss of power; what it has not may or may not be there.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.model.queue import Queue
from eventbridge.sources.embedded.file import BusFile
from eventbridge.sources.embedded.places import microseconds, position, queue_of_key
from eventbridge.sources.messages import message_block

#: A page of a read ends at whichever comes first: this many messages, or this many bytes of bodies.
PAGE_MESSAGES = 1_000
PAGE_BYTES = 4 * 1024 * 1024

#: A trim lets publishers in after each of these.
TRIM_MESSAGES = 10_000

#: What a bus may be called.
BUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class EmbeddedBus:
    """A log source whose messages lie in `<folder>/<bus>.sqlite`; made with its topics if it is not there.

    Sees and makes the topics it is given and no others. `queues` is how many queues a topic gets when it is made;
    a topic that is there keeps what it has.
    Threads may share an instance; a process forked from one must open its own.
    Raises BusError with a remedy where the file cannot be opened, read or written.
    """

    kind: Literal["log"] = "log"

    def __init__(
        self,
        folder: Path,
        bus: str,
        *,
        topics: Sequence[str] = ("events",),
        queues: int = 4,
        clock: Callable[[], datetime],
    ) -> None:
        if not BUS_NAME.fullmatch(bus):
            raise UserError(f"{bus!r} cannot name a bus: use letters, digits, '.', '_' and '-'")
        if not topics or queues < 1:
            raise UserError(f"bus {bus}: a bus has at least one topic, and a topic at least one queue")
        self.bus = bus
        self.path = folder / f"{bus}.sqlite"
        self._topics = tuple(dict.fromkeys(topics))
        self._clock = clock
        self._file = BusFile(self.path)
        try:
            self._numbers = self._find_queues(queues)
        except BaseException:
            self._file.close()
            raise
        self._queues = {number: queue for queue, number in self._numbers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @property
    def uri(self) -> str:
        """Return `file://` and the absolute path of the bus's file."""
        return self.path.absolute().as_uri()

    def identities(self) -> Mapping[str, str]:
        """Return for each topic the UUID that the file was given when it was made; a copy of the file has the same."""
        return dict.fromkeys(self._topics, self._file.identity)

    def free_bytes(self) -> int:
        """Return the free space of the file system that holds the file, as this user may use it."""
        try:
            return shutil.disk_usage(self.path.parent).free
        except OSError as error:
            raise BusError(f"{self.path.parent}: {error.strerror}. Look at the disk") from None

    def queues(self) -> Sequence[Queue]:
        """Return the queues of the topics, in order of topic and queue id."""
        return sorted(self._numbers)

    def earliest(self, queue: Queue) -> int:
        """Return the first offset still held (the end offset if the queue is empty)."""
        return self._bounds(self._number(queue))[0]

    def end(self, queue: Queue) -> int:
        """Return the offset the next message will get."""
        return self._bounds(self._number(queue))[1]

    def ends(self) -> Mapping[Queue, int]:
        """Return the end offset of every queue, by one short query: cheap enough to ask several times a second."""
        rows = self._file.rows("SELECT number, end_offset FROM queue")
        return {self._queues[number]: end for number, end in rows if number in self._queues}

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""
        # A trim in the middle of the search would take away what it looks at.
        with self._file.snapshot():
            return self._first_since(self._number(queue), microseconds(at))

    def publish(self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None) -> list[tuple[Queue, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies.

        All of them are on disk when this returns, and none of them is there if it raises before its commit.
        Records of one key go to one queue, in order; records without one take turns.
        A message's time is never before that of its predecessor in the queue, whatever the clock does.
        """
        topic = self._topics[0] if topic is None else topic
        queues = [queue for queue in self.queues() if queue.topic == topic]
        if not queues:
            raise BusError(f"{self.path}: topic {topic!r} is not open; open are {', '.join(self._topics)}")
        fault_points.reach("bus.publish")
        with self._file.writing() as connection:
            places = self._append(connection, queues, records)
            fault_points.reach("bus.publish.written")
        fault_points.reach("bus.publish.done")
        return places

    def read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, a page as one block of `MESSAGES`.

        An offset that is in no block is a gap: retention has dropped it. Keys are not kept, and there are no headers.
        Raises OffsetGapError if `end` lies beyond the end of the queue: this is not the log it was planned on.
        """
        log_end = self.end(queue)
        if end > log_end:
            raise OffsetGapError(
                f"{self.path}: offsets {start} to {end} of {queue.topic}/{queue.queue_id} are wanted, and it ends at "
                f"{log_end}: the bus was replaced by an older or empty one. Put the right file back"
            )
        return self._pages(queue, start, end)

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets recorded for a consumer group, for the queues of the topics."""
        rows = self._file.rows("SELECT queue, next_offset FROM committed_offset WHERE consumer_group = ?", (group,))
        return {self._queues[number]: offset for number, offset in rows if number in self._queues}

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group, durably; the last one written counts, be it lower or higher."""
        now = microseconds(self._clock())
        rows = [(group, self._number(queue), offset, now) for queue, offset in offsets.items()]
        fault_points.reach("bus.commit")
        with self._file.writing() as connection:
            connection.executemany(
                "INSERT INTO committed_offset (consumer_group, queue, next_offset, committed_at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset, committed_at = excluded.committed_at",
                rows,
            )
        fault_points.reach("bus.commit.done")

    def trim(self, before: datetime, keep: Mapping[Queue, int] | None = None) -> int:
        """Drop the messages of the topics that were published before the aware time `before`; return how many.

        Of a queue in `keep` none from that offset on. Read or not: offsets that a group has not read become gaps.
        The file keeps its size and uses the room again.
        """
        kept = {self._number(queue): offset for queue, offset in (keep or {}).items()}
        return sum(self._trim_queue(number, microseconds(before), kept.get(number)) for number in self._queues)

    def _find_queues(self, queues: int) -> dict[Queue, int]:
        found = self._select_queues()
        missing = [topic for topic in self._topics if topic not in {queue.topic for queue in found}]
        if not missing:
            return found
        with self._file.writing() as connection:
            made = {queue.topic for queue in self._select_queues()}  # by another process meanwhile
            connection.executemany(
                "INSERT INTO queue (topic, queue_id) VALUES (?, ?)",
                [(topic, queue_id) for topic in missing if topic not in made for queue_id in range(queues)],
            )
        return self._select_queues()

    def _select_queues(self) -> dict[Queue, int]:
        rows = self._file.rows("SELECT topic, queue_id, number FROM queue")
        return {Queue(topic, "", queue_id): number for topic, queue_id, number in rows if topic in self._topics}

    def _append(
        self, connection: sqlite3.Connection, queues: Sequence[Queue], records: Sequence[tuple[bytes, str | None]]
    ) -> list[tuple[Queue, int]]:
        rows = connection.execute("SELECT number, end_offset, last_published_at FROM queue")
        state = {number: (end, last) for number, end, last in rows}
        ends = {queue: state[self._numbers[queue]][0] for queue in queues}
        now = microseconds(self._clock())
        times = {queue: max(now, state[self._numbers[queue]][1]) for queue in queues}
        turn = sum(ends.values())
        places: list[tuple[Queue, int]] = []
        messages: list[tuple[int, int, bytes]] = []
        for body, key in records:
            if key is None:
                queue, turn = queues[turn % len(queues)], turn + 1
            else:
                queue = queues[queue_of_key(key, len(queues))]
            offset = ends[queue]
            ends[queue] = offset + 1
            places.append((queue, offset))
            messages.append((position(self._numbers[queue], offset), times[queue], body))
        connection.executemany("INSERT INTO message (position, published_at, body) VALUES (?, ?, ?)", messages)
        connection.executemany(
            "UPDATE queue SET end_offset = ?, last_published_at = ? WHERE number = ?",
            [(ends[queue], times[queue], self._numbers[queue]) for queue in {queue for queue, _ in places}],
        )
        return places

    def _pages(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        base = position(self._number(queue), 0)
        while start < end:
            fault_points.reach("bus.read")
            page = self._page(base + start, base + end)
            if not page:
                return
            positions, times, bodies = zip(*page, strict=True)
            yield message_block([at - base for at in positions], times, bodies)
            start = positions[-1] - base + 1

    def _page(self, first: int, end: int) -> list[tuple[int, int, bytes]]:
        # A cursor left open would keep the write-ahead log from being cut for as long as the caller takes.
        page: list[tuple[int, int, bytes]] = []
        size = 0
        with self._file.reading() as connection:
            cursor = connection.execute(
                "SELECT position, published_at, body FROM message WHERE position >= ? AND position < ? "
                "ORDER BY position LIMIT ?",
                (first, end, PAGE_MESSAGES),
            )
            with contextlib.closing(cursor):
                for row in cursor:
                    page.append(row)
                    size += len(row[2])
                    if size >= PAGE_BYTES:
                        break
        return page

    def _trim_queue(self, number: int, before: int, kept: int | None) -> int:
        dropped = 0
        while True:
            fault_points.reach("bus.trim")
            with self._file.writing() as connection:
                first, end = self._bounds(number)
                since = self._first_since(number, before)
                since = since if kept is None else max(first, min(since, kept))
                keep = min(since, first + TRIM_MESSAGES)
                cursor = connection.execute(
                    "DELETE FROM message WHERE position >= ? AND position < ?",
                    (position(number, first), position(number, keep)),
                )
                connection.execute("UPDATE queue SET first_offset = ? WHERE number = ?", (keep, number))
            fault_points.reach("bus.trim.done")
            dropped += cursor.rowcount
            if keep == end or keep < first + TRIM_MESSAGES:
                return dropped

    def _first_since(self, number: int, at: int) -> int:
        first, end = self._bounds(number)
        return first + bisect_left(range(first, end), at, key=lambda offset: self._published_at(number, offset))

    def _published_at(self, number: int, offset: int) -> int:
        place = position(number, offset)
        return int(self._file.rows("SELECT published_at FROM message WHERE position = ?", (place,))[0][0])

    def _bounds(self, number: int) -> tuple[int, int]:
        ((first, end),) = self._file.rows("SELECT first_offset, end_offset FROM queue WHERE number = ?", (number,))
        return first, end

    def _number(self, queue: Queue) -> int:
        try:
            return self._numbers[queue]
        except KeyError:
            raise BusError(f"{self.path}: there is no queue {queue.topic}/{queue.queue_id} among those open") from None
