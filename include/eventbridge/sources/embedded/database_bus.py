"""The embedded bus of several hosts: a durable log in the PostgreSQL database that holds their ledger.

It keeps the contract of the bus in a file, `eventbridge.sources.embedded.bus`, and is told from it by its URI alone.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.model.queue import Queue
from eventbridge.sources.embedded.bus import (
    BUS_NAME,
    PAGE_BYTES,
    PAGE_MESSAGES,
    TRIM_MESSAGES,
)
from eventbridge.sources.embedded.places import microseconds, queue_of_key
from eventbridge.sources.embedded.server import SCHEMA, BusServer
from eventbridge.sources.messages import message_block

#: A page: so many messages, of which those go out whose bodies fit; the size of a body is known without reading it.
_PAGE = (
    "SELECT place, published_at, body FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY place) AS so_far FROM ("
    f"SELECT * FROM {SCHEMA}.message WHERE queue = %s AND place >= %s AND place < %s ORDER BY place "
    f"LIMIT {PAGE_MESSAGES}) AS next) AS counted WHERE so_far - octet_length(body) < {PAGE_BYTES} ORDER BY place"
)

#: How long an answer of `ends` holds for one that follows the bus.
_ENDS_HOLD_SECONDS = 0.02


class DatabaseBus:
    """A log source whose messages lie on the server of a ledger; made with its topics if it is not there.

    Sees and makes the topics it is given and no others. `queues` is how many queues a topic gets when it is made;
    a topic that is there keeps what it has. Processes of any number of hosts may publish and read at once.
    Threads may share an instance; a process forked from one must open its own.
    Raises BusError with a remedy where the server cannot be reached, read or written.
    """

    kind: Literal["log"] = "log"

    def __init__(
        self,
        url: str,
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
        self._topics = tuple(dict.fromkeys(topics))
        self._clock = clock
        self._server = BusServer(url, bus)
        try:
            self._numbers = self._find_queues(queues)
        except BaseException:
            self._server.close()
            raise
        self._queues = {number: queue for queue, number in self._numbers.items()}
        self._followed = False
        self._ends: Mapping[Queue, int] = {}
        self._ends_until = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    @property
    def uri(self) -> str:
        """Return `postgresql://`, host, port and database, and the bus behind `#`; never user and password."""
        return self._server.uri

    def identities(self) -> Mapping[str, str]:
        """Return for each topic the UUID that the bus was given when it was made."""
        return dict.fromkeys(self._topics, self._server.identity)

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
        """Return the end offset of every queue, by one short query: cheap enough to ask several times a second.

        Followed, it is asked so often that an answer holds for some milliseconds.
        """
        if time.monotonic() < self._ends_until:
            return self._ends
        rows = self._server.rows(f"SELECT number, end_offset FROM {SCHEMA}.queue WHERE bus = %s", (self.bus,))
        found = {self._queues[number]: end for number, end in rows if number in self._queues}
        if self._followed:
            self._ends, self._ends_until = found, time.monotonic() + _ENDS_HOLD_SECONDS
        return found

    def follow(self, _positions: Mapping[Queue, int]) -> None:
        """Be asked for the ends hundreds of times a second."""
        self._followed = True

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""
        with self._server.snapshot():  # a trim in the middle of the search would take away what it looks at
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
            raise BusError(f"{self.uri}: topic {topic!r} is not open; open are {', '.join(self._topics)}")
        fault_points.reach("bus.publish")
        now = microseconds(self._clock())
        with self._server.writing() as connection:
            places = self._append(connection, queues, records, now)
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
                f"{self.uri}: offsets {start} to {end} of {queue.topic}/{queue.queue_id} are wanted, and it ends at "
                f"{log_end}: the database was replaced by an older or empty one. Put the right one back"
            )
        return self._pages(queue, start, end)

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets recorded for a consumer group, for the queues of the topics."""
        query = f"SELECT queue, next_offset FROM {SCHEMA}.committed_offset WHERE consumer_group = %s"
        rows = self._server.rows(query, (group,))
        return {self._queues[number]: offset for number, offset in rows if number in self._queues}

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group, durably; the last one written counts, be it lower or higher."""
        now = microseconds(self._clock())
        rows = sorted((group, self._number(queue), offset, now) for queue, offset in offsets.items())
        fault_points.reach("bus.commit")
        with self._server.writing() as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {SCHEMA}.committed_offset (consumer_group, queue, next_offset, committed_at) "
                "VALUES (%s, %s, %s, %s) ON CONFLICT (consumer_group, queue) "
                "DO UPDATE SET next_offset = excluded.next_offset, committed_at = excluded.committed_at",
                rows,
            )
        fault_points.reach("bus.commit.done")

    def trim(self, before: datetime, keep: Mapping[Queue, int] | None = None) -> int:
        """Drop the messages of the topics that were published before the aware time `before`; return how many.

        Of a queue in `keep` none from that offset on. Read or not: offsets that a group has not read become gaps.
        """
        kept = {self._number(queue): offset for queue, offset in (keep or {}).items()}
        return sum(self._trim_queue(number, microseconds(before), kept.get(number)) for number in self._queues)

    def _find_queues(self, queues: int) -> dict[Queue, int]:
        found = self._select_queues()
        missing = [topic for topic in self._topics if topic not in {queue.topic for queue in found}]
        if not missing:
            return found
        with self._server.writing() as connection, connection.cursor() as cursor:
            # one after another, or two that ask for different numbers of queues would both have their way
            cursor.execute(f"SELECT name FROM {SCHEMA}.bus WHERE name = %s FOR UPDATE", (self.bus,))
            made = {queue.topic for queue in self._select_queues()}
            cursor.executemany(
                f"INSERT INTO {SCHEMA}.queue (bus, topic, queue_id) VALUES (%s, %s, %s)",
                [(self.bus, topic, each) for topic in missing if topic not in made for each in range(queues)],
            )
        return self._select_queues()

    def _select_queues(self) -> dict[Queue, int]:
        rows = self._server.rows(f"SELECT topic, queue_id, number FROM {SCHEMA}.queue WHERE bus = %s", (self.bus,))
        return {Queue(topic, "", queue_id): number for topic, queue_id, number in rows if topic in self._topics}

    def _append(
        self, connection: Any, queues: Sequence[Queue], records: Sequence[tuple[bytes, str | None]], now: int
    ) -> list[tuple[Queue, int]]:
        numbers = [self._numbers[queue] for queue in queues]
        rows = connection.execute(
            f"SELECT number, end_offset, last_published_at FROM {SCHEMA}.queue WHERE number = ANY(%s) "
            "ORDER BY number FOR UPDATE",
            (numbers,),
        )
        state = {number: (end, last) for number, end, last in rows}
        ends = {queue: state[self._numbers[queue]][0] for queue in queues}
        times = {queue: max(now, state[self._numbers[queue]][1]) for queue in queues}
        turn = sum(ends.values())
        places: list[tuple[Queue, int]] = []
        with connection.cursor() as cursor:
            statement = f"COPY {SCHEMA}.message (queue, place, published_at, body) FROM STDIN (FORMAT BINARY)"
            with cursor.copy(statement) as copy:
                copy.set_types(["int8", "int8", "int8", "bytea"])
                for body, key in records:
                    if key is None:
                        queue, turn = queues[turn % len(queues)], turn + 1
                    else:
                        queue = queues[queue_of_key(key, len(queues))]
                    copy.write_row((self._numbers[queue], ends[queue], times[queue], body))
                    places.append((queue, ends[queue]))
                    ends[queue] += 1
            cursor.executemany(
                f"UPDATE {SCHEMA}.queue SET end_offset = %s, last_published_at = %s WHERE number = %s",
                [(ends[queue], times[queue], self._numbers[queue]) for queue in {queue for queue, _ in places}],
            )
        return places

    def _pages(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        number = self._number(queue)
        while start < end:
            fault_points.reach("bus.read")
            page = self._server.rows(_PAGE, (number, start, end))
            if not page:
                return
            places, times, bodies = zip(*page, strict=True)
            yield message_block(places, times, bodies)
            start = places[-1] + 1

    def _trim_queue(self, number: int, before: int, kept: int | None) -> int:
        dropped = 0
        while True:
            fault_points.reach("bus.trim")
            with self._server.writing() as connection:
                connection.execute(f"SELECT number FROM {SCHEMA}.queue WHERE number = %s FOR UPDATE", (number,))
                first, end = self._bounds(number)
                since = self._first_since(number, before)
                since = since if kept is None else max(first, min(since, kept))
                keep = min(since, first + TRIM_MESSAGES)
                gone = f"DELETE FROM {SCHEMA}.message WHERE queue = %s AND place >= %s AND place < %s"
                count = connection.execute(gone, (number, first, keep)).rowcount
                connection.execute(f"UPDATE {SCHEMA}.queue SET first_offset = %s WHERE number = %s", (keep, number))
            fault_points.reach("bus.trim.done")
            dropped += count
            if keep == end or keep < first + TRIM_MESSAGES:
                return dropped

    def _first_since(self, number: int, at: int) -> int:
        first, end = self._bounds(number)
        return first + bisect_left(range(first, end), at, key=lambda place: self._published_at(number, place))

    def _published_at(self, number: int, place: int) -> int:
        query = f"SELECT published_at FROM {SCHEMA}.message WHERE queue = %s AND place = %s"
        return int(self._server.rows(query, (number, place))[0][0])

    def _bounds(self, number: int) -> tuple[int, int]:
        query = f"SELECT first_offset, end_offset FROM {SCHEMA}.queue WHERE number = %s"
        ((first, end),) = self._server.rows(query, (number,))
        return first, end

    def _number(self, queue: Queue) -> int:
        try:
            return self._numbers[queue]
        except KeyError:
            raise BusError(f"{self.uri}: there is no queue {queue.topic}/{queue.queue_id} among those open") from None
