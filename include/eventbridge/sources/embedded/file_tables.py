"""The tables of an embedded bus in a SQLite file, one a bus."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from eventbridge.sources.embedded import tables
from eventbridge.sources.embedded.file import BusFile
from eventbridge.sources.embedded.places import offset_of, position
from eventbridge.sources.embedded.tables import End, Message


class FileTables:
    """The tables in a file, which is created if it does not exist; implements `tables.Tables`."""

    place = "file"

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.uri = path.absolute().as_uri()
        self._file = BusFile(path)
        self.identity = self._file.identity

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def snapshot(self) -> contextlib.AbstractContextManager[object]:
        """Let several queries see one consistent state of the bus."""
        return self._file.snapshot()

    @contextlib.contextmanager
    def writing(self) -> Iterator[FileWriter]:
        """Make the block one transaction of the file's only writer, on disk when it ends, rolled back if it raises."""
        with self._file.writing() as connection:
            yield FileWriter(connection)

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return topic, id and number of each partition."""
        return self._file.rows("SELECT topic, partition_id, number FROM partition")

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return number and end offset of each partition."""
        return self._file.rows("SELECT number, end_offset FROM partition")

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset that a partition still holds, and its end offset."""
        ((first, end),) = self._file.rows("SELECT first_offset, end_offset FROM partition WHERE number = ?", (number,))
        return first, end

    def published_at(self, number: int, offset: int) -> int:
        """Return when a stored message was published."""
        place = position(number, offset)
        return int(self._file.rows("SELECT published_at FROM message WHERE position = ?", (place,))[0][0])

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return the first page of messages of a range."""
        # An open cursor would keep the write-ahead log from being truncated while the caller processes the page.
        page: list[tuple[int, int, bytes]] = []
        size = 0
        with self._file.reading() as connection:
            cursor = connection.execute(
                "SELECT position, published_at, body FROM message WHERE position >= ? AND position < ? "
                "ORDER BY position LIMIT ?",
                (position(number, start), position(number, end), tables.PAGE_MESSAGES),
            )
            with contextlib.closing(cursor):
                for at, published_at, body in cursor:
                    page.append((offset_of(at), published_at, body))
                    size += len(body)
                    if size >= tables.PAGE_BYTES:
                        break
        return page

    def committed(self, group: str) -> Iterable[tuple[int, int]]:
        """Return number and committed offset of each partition of a consumer group."""
        return self._file.rows("SELECT partition, next_offset FROM committed_offset WHERE consumer_group = ?", (group,))


class FileWriter:
    """One transaction of the file's only writer, which needs no row locks; implements `tables.Writer`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def lock_bus(self) -> None:
        """Do nothing: there is no other writer."""

    def make_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Create partitions, each by its topic and id."""
        self._connection.executemany("INSERT INTO partition (topic, partition_id) VALUES (?, ?)", partitions)

    def lock_ends(self, numbers: Sequence[int]) -> Mapping[int, End]:
        """Return the ends of partitions."""
        rows = self._connection.execute("SELECT number, end_offset, last_published_at FROM partition")
        return {number: End(offset, at) for number, offset, at in rows if number in numbers}

    def append(self, messages: Iterator[Message]) -> None:
        """Add messages."""
        rows = ((position(each.partition, each.offset), each.published_at, each.body) for each in messages)
        self._connection.executemany("INSERT INTO message (position, published_at, body) VALUES (?, ?, ?)", rows)

    def move_ends(self, ends: Mapping[int, End]) -> None:
        """Set the ends of partitions."""
        self._connection.executemany(
            "UPDATE partition SET end_offset = ?, last_published_at = ? WHERE number = ?",
            [(*end, number) for number, end in ends.items()],
        )

    def commit_offsets(self, group: str, offsets: Mapping[int, int], at: int) -> None:
        """Record offsets of a consumer group."""
        self._connection.executemany(
            "INSERT INTO committed_offset (consumer_group, partition, next_offset, committed_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset, committed_at = excluded.committed_at",
            [(group, number, offset, at) for number, offset in offsets.items()],
        )

    def lock_partition(self, number: int) -> None:
        """Do nothing: there is no other writer."""

    def drop(self, number: int, first: int, end: int) -> int:
        """Drop the messages of a partition with first <= offset < end; return their number."""
        cursor = self._connection.execute(
            "DELETE FROM message WHERE position >= ? AND position < ?", (position(number, first), position(number, end))
        )
        self._connection.execute("UPDATE partition SET first_offset = ? WHERE number = ?", (end, number))
        return cursor.rowcount
