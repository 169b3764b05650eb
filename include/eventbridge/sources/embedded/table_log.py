"""Implements the embedded bus on its tables: chooses partitions, reads ranges, trims."""

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
from eventbridge.sources.embedded.tables import End, Message, Tables, Writer, microseconds, partition_of_key
from eventbridge.sources.messages import message_block

#: The maximum number of messages that a trim drops in one transaction, so that publishers do not wait long.
TRIM_MESSAGES = 10_000

#: Valid names of a bus.
_BUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class TableLog:
    """A log source in tables; its topics are created if they do not exist.

    It uses only the given topics. `partitions` is the number of partitions of a new topic; an existing topic keeps its
    number. Threads may share an instance; a forked process must open its own. Raises BusError with a remedy if the
    tables cannot be opened, read or written.
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
            raise UserError(f"bus {bus}: a bus must have at least one topic, and a topic at least one partition")
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
        """Close the tables."""
        self._tables.close()

    @property
    def uri(self) -> str:
        """Return the URI of the file or database, without user and password."""
        return self._tables.uri

    def identities(self) -> Mapping[str, str]:
        """Return the UUID that the bus got when it was created, by topic; a copy of the bus has the same UUID."""
        return dict.fromkeys(self._topics, self._tables.identity)

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions of the topics, in order of topic and partition id."""
        return sorted(self._numbers)

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if the partition is empty)."""
        return self._tables.bounds(self._number(partition))[0]

    def end(self, partition: Partition) -> int:
        """Return the offset that the next message will get."""
        return self._tables.bounds(self._number(partition))[1]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition with one short query, cheap enough for several calls a second."""
        return {self._partitions[number]: end for number, end in self._tables.ends() if number in self._partitions}

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""
        with self._tables.snapshot():  # a trim during the search would remove the messages that it compares
            return self._first_since(self._number(partition), microseconds(at))

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each.

        All of them are durable when this returns; none is stored if it raises before its commit. Records with the same
        key go to one partition, in order; records without a key are distributed round-robin. Times within a partition
        never decrease, even if the clock is set back.
        """
        topic = self._topics[0] if topic is None else topic
        partitions = [partition for partition in self.partitions() if partition.topic == topic]
        if not partitions:
            raise BusError(f"{self._tables.name}: topic {topic!r} is not open. Open topics: {', '.join(self._topics)}")
        fault_points.reach("bus.publish")
        with self._tables.writing() as writer:
            positions = self._append(writer, partitions, records)
            fault_points.reach("bus.publish.written")
        fault_points.reach("bus.publish.done")
        return positions

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, each page as one block of `MESSAGES`.

        An offset that is in no block is a gap, which retention has dropped. Keys are not stored, and there are no
        headers. Raises OffsetGapError if `end` is beyond the end of the partition, because the range was planned on
        another log.
        """
        log_end, tables = self.end(partition), self._tables
        if end > log_end:
            raise OffsetGapError(
                f"{tables.name}: offsets {start} to {end} of {partition.topic}/{partition.partition_id} were "
                f"requested, but the partition ends at {log_end}: the bus was replaced by an older or empty one. "
                f"Restore the right {tables.storage}"
            )
        return (message_block(*zip(*page, strict=True)) for page in self.pages(partition, start, end))

    def pages(
        self, partition: Partition, start: int, end: int
    ) -> Generator[Sequence[tuple[int, int, bytes]], None, None]:
        """Yield the offset, time and body of the messages that `read` would, in pages; `end` is not checked."""
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
        """Record offsets (next to read) for a group, durably; the last write wins, even with a lower offset."""
        now = microseconds(self._clock())
        of_number = {self._number(partition): offset for partition, offset in offsets.items()}
        fault_points.reach("bus.commit")
        with self._tables.writing() as writer:
            writer.commit_offsets(group, of_number, now)
        fault_points.reach("bus.commit.done")

    def trim(self, before: datetime, keep: Mapping[Partition, int] | None = None) -> int:
        """Drop those messages of the topics that were published before the aware time `before`; return how many.

        In a partition in `keep`, messages at or after that offset are kept. Dropped offsets that a group has not read
        become gaps. A file does not shrink; the space is reused.
        """
        kept = {self._number(partition): offset for partition, offset in (keep or {}).items()}
        return sum(self._trim_partition(number, microseconds(before), kept.get(number)) for number in self._partitions)

    def _find_partitions(self, partitions: int) -> dict[Partition, int]:
        found = self._select_partitions()
        missing = [topic for topic in self._topics if topic not in {partition.topic for partition in found}]
        if not missing:
            return found
        with self._tables.writing() as writer:
            writer.lock_bus()  # otherwise two processes with different numbers of partitions would both create theirs
            made = {partition.topic for partition in self._select_partitions()}  # another process may have been faster
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
        positions = _positions(partitions, ends, [key for _, key in records])
        writer.append(
            Message(self._numbers[partition], offset, times[partition], body)
            for (partition, offset), (body, _) in zip(positions, records, strict=True)
        )
        moved = {partition for partition, _ in positions}
        writer.move_ends({self._numbers[partition]: End(ends[partition], times[partition]) for partition in moved})
        return positions

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
            raise BusError(f"{self._tables.name}: the partition {where} is not open") from None


def _positions(
    partitions: Sequence[Partition], ends: dict[Partition, int], keys: Sequence[str | None]
) -> list[tuple[Partition, int]]:
    """Return the partition and offset of each record, chosen by its key or round-robin, and advance `ends`."""
    turn = sum(ends.values())
    positions: list[tuple[Partition, int]] = []
    for key in keys:
        if key is None:
            partition, turn = partitions[turn % len(partitions)], turn + 1
        else:
            partition = partitions[partition_of_key(key, len(partitions))]
        positions.append((partition, ends[partition]))
        ends[partition] += 1
    return positions
