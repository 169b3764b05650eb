"""The embedded bus over its tables: which partition takes a message, what is read, and what a trim drops."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Self

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.places import microseconds, partition_of_key
from eventbridge.sources.embedded.tables import End, Message, Tables, Writer
from eventbridge.sources.messages import message_block

#: A trim lets publishers in after each of these.
TRIM_MESSAGES = 10_000

#: What a bus may be called.
_BUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class TableLog:
    """A log source whose messages lie in tables; its topics are made if they are not there.

    Sees and makes the topics it is given and no others. `partitions` is how many partitions a topic gets when it is
    made; a topic that is there keeps what it has.
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
        partitions: int,
        clock: Callable[[], datetime],
    ) -> None:
        if not _BUS_NAME.fullmatch(bus):
            raise UserError(f"{bus!r} cannot name a bus: use letters, digits, '.', '_' and '-'")
        if not topics or partitions < 1:
            raise UserError(f"bus {bus}: a bus has at least one topic, and a topic at least one partition")
        self.bus = bus
        self._topics = tuple(dict.fromkeys(topics))
        self._clock = clock
        self._tables = open_tables()
        try:
            self._numbers = self._find_partitions(partitions)
        except BaseException:
            self._tables.close()
            raise
        self._partitions = {number: partition for partition, number in self._numbers.items()}

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

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions of the topics, in order of topic and partition id."""
        return sorted(self._numbers)

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if the partition is empty)."""
        return self._tables.bounds(self._number(partition))[0]

    def end(self, partition: Partition) -> int:
        """Return the offset the next message will get."""
        return self._tables.bounds(self._number(partition))[1]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition, by one short query: cheap enough to ask several times a second."""
        return {self._partitions[number]: end for number, end in self._tables.ends() if number in self._partitions}

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""
        with self._tables.snapshot():  # a trim in the middle of the search would take away what it looks at
            return self._first_since(self._number(partition), microseconds(at))

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies.

        All of them are durable when this returns, and none of them is there if it raises before its commit.
        Records of one key go to one partition, in order; records without one take turns.
        A message's time is never before that of its predecessor in the partition, whatever the clock does.
        """
        topic = self._topics[0] if topic is None else topic
        partitions = [partition for partition in self.partitions() if partition.topic == topic]
        if not partitions:
            raise BusError(f"{self._tables.name}: topic {topic!r} is not open; open are {', '.join(self._topics)}")
        fault_points.reach("bus.publish")
        with self._tables.writing() as writer:
            places = self._append(writer, partitions, records)
            fault_points.reach("bus.publish.written")
        fault_points.reach("bus.publish.done")
        return places

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, a page as one block of `MESSAGES`.

        An offset that is in no block is a gap: retention has dropped it. Keys are not kept, and there are no headers.
        Raises OffsetGapError if `end` lies beyond the end of the partition: this is not the log it was planned on.
        """
        log_end, tables = self.end(partition), self._tables
        if end > log_end:
            raise OffsetGapError(
                f"{tables.name}: offsets {start} to {end} of {partition.topic}/{partition.partition_id} are wanted, and it ends at "
                f"{log_end}: the bus was replaced by an older or empty one. Put the right {tables.place} back"
            )
        return (message_block(*zip(*page, strict=True)) for page in self.pages(partition, start, end))

    def pages(
        self, partition: Partition, start: int, end: int
    ) -> Generator[Sequence[tuple[int, int, bytes]], None, None]:
        """Yield offset, time and body of what `read` gives, a page at a time; `end` is not looked at."""
        number = self._number(partition)
        while start < end:
            fault_points.reach("bus.read")
            page = self._tables.page(number, start, end)
            if not page:
                return
            yield page
            start = page[-1][0] + 1

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets recorded for a consumer group, for the partitions of the topics."""
        found = self._tables.committed(group)
        return {self._partitions[number]: offset for number, offset in found if number in self._partitions}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group, durably; the last one written counts, be it lower or higher."""
        now = microseconds(self._clock())
        of_number = {self._number(partition): offset for partition, offset in offsets.items()}
        fault_points.reach("bus.commit")
        with self._tables.writing() as writer:
            writer.commit_offsets(group, of_number, now)
        fault_points.reach("bus.commit.done")

    def trim(self, before: datetime, keep: Mapping[Partition, int] | None = None) -> int:
        """Drop the messages of the topics that were published before the aware time `before`; return how many.

        Of a partition in `keep` none from that offset on. Read or not: offsets that a group has not read become gaps.
        A file keeps its size and uses the room again.
        """
        kept = {self._number(partition): offset for partition, offset in (keep or {}).items()}
        return sum(self._trim_partition(number, microseconds(before), kept.get(number)) for number in self._partitions)

    def _find_partitions(self, partitions: int) -> dict[Partition, int]:
        found = self._select_partitions()
        missing = [topic for topic in self._topics if topic not in {partition.topic for partition in found}]
        if not missing:
            return found
        with self._tables.writing() as writer:
            writer.lock_bus()  # or two that ask for different numbers of partitions would both have their way
            made = {partition.topic for partition in self._select_partitions()}  # by another process meanwhile
            writer.make_partitions(
                (topic, each) for topic in missing if topic not in made for each in range(partitions)
            )
        return self._select_partitions()

    def _select_partitions(self) -> dict[Partition, int]:
        found = self._tables.partitions()
        return {
            Partition(topic, "", partition_id): number for topic, partition_id, number in found if topic in self._topics
        }

    def _append(
        self, writer: Writer, partitions: Sequence[Partition], records: Sequence[tuple[bytes, str | None]]
    ) -> list[tuple[Partition, int]]:
        before = writer.lock_ends([self._numbers[partition] for partition in partitions])
        now = microseconds(self._clock())
        ends = {partition: before[self._numbers[partition]].offset for partition in partitions}
        times = {partition: max(now, before[self._numbers[partition]].published_at) for partition in partitions}
        places = _places(partitions, ends, [key for _, key in records])
        writer.append(
            Message(self._numbers[partition], offset, times[partition], body)
            for (partition, offset), (body, _) in zip(places, records, strict=True)
        )
        moved = {partition for partition, _ in places}
        writer.move_ends({self._numbers[partition]: End(ends[partition], times[partition]) for partition in moved})
        return places

    def _trim_partition(self, number: int, before: int, kept: int | None) -> int:
        dropped = 0
        while True:
            fault_points.reach("bus.trim")
            with self._tables.writing() as writer:
                writer.lock_partition(number)
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

    def _number(self, partition: Partition) -> int:
        try:
            return self._numbers[partition]
        except KeyError:
            where = f"{partition.topic}/{partition.partition_id}"
            raise BusError(f"{self._tables.name}: there is no partition {where} among those open") from None


def _places(
    partitions: Sequence[Partition], ends: dict[Partition, int], keys: Sequence[str | None]
) -> list[tuple[Partition, int]]:
    """Return which partition and offset each record gets, by its key or in turn, and move `ends` on."""
    turn = sum(ends.values())
    places: list[tuple[Partition, int]] = []
    for key in keys:
        if key is None:
            partition, turn = partitions[turn % len(partitions)], turn + 1
        else:
            partition = partitions[partition_of_key(key, len(partitions))]
        places.append((partition, ends[partition]))
        ends[partition] += 1
    return places
