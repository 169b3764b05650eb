"""The tables of an embedded bus on a PostgreSQL server, which it shares with other buses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from psycopg import Connection

from eventbridge.sources.embedded.server import SCHEMA, BusServer
from eventbridge.sources.embedded.tables import PAGE_BYTES, PAGE_MESSAGES, End, Message

#: A page: a number of messages, cut where their bodies exceed the page size; the size of a body is known without
#: reading it.
_PAGE = (
    "SELECT place, published_at, body FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY place) AS so_far FROM ("
    f"SELECT * FROM {SCHEMA}.message WHERE partition = %s AND place >= %s AND place < %s ORDER BY place "
    f"LIMIT {PAGE_MESSAGES}) AS next) AS counted WHERE so_far - octet_length(body) < {PAGE_BYTES} ORDER BY place"
)


class ServerTables:
    """The tables on a server, created if they do not exist; implements `tables.Tables`."""

    place = "database"

    def __init__(self, url: str, bus: str) -> None:
        self._bus = bus
        self._server = BusServer(url, bus)
        self.name = self.uri = self._server.uri
        self.identity = self._server.identity

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def snapshot(self) -> AbstractContextManager[object]:
        """Let several queries see one consistent state of the bus."""
        return self._server.snapshot()

    @contextmanager
    def writing(self) -> Iterator[ServerWriter]:
        """Make the block one transaction, durable when it ends, rolled back if it raises."""
        with self._server.writing() as connection:
            yield ServerWriter(connection, self._bus)

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return topic, id and number of each partition."""
        return self._server.rows(
            f"SELECT topic, partition_id, number FROM {SCHEMA}.partition WHERE bus = %s", (self._bus,)
        )

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return number and end offset of each partition."""
        return self._server.rows(f"SELECT number, end_offset FROM {SCHEMA}.partition WHERE bus = %s", (self._bus,))

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset that a partition still holds, and its end offset."""
        query = f"SELECT first_offset, end_offset FROM {SCHEMA}.partition WHERE number = %s"
        ((first, end),) = self._server.rows(query, (number,))
        return first, end

    def published_at(self, number: int, offset: int) -> int:
        """Return when a stored message was published."""
        query = f"SELECT published_at FROM {SCHEMA}.message WHERE partition = %s AND place = %s"
        return int(self._server.rows(query, (number, offset))[0][0])

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return the first page of messages of a range."""
        return self._server.rows(_PAGE, (number, start, end))

    def committed(self, group: str) -> Iterable[tuple[int, int]]:
        """Return number and committed offset of each partition of a consumer group."""
        query = f"SELECT partition, next_offset FROM {SCHEMA}.committed_offset WHERE consumer_group = %s"
        return self._server.rows(query, (group,))


class ServerWriter:
    """One transaction on the server, concurrent with others; implements `tables.Writer`."""

    def __init__(self, connection: Connection, bus: str) -> None:
        self._connection = connection
        self._bus = bus

    def lock_bus(self) -> None:
        """Keep other transactions from creating partitions."""
        self._connection.execute(f"SELECT name FROM {SCHEMA}.bus WHERE name = %s FOR UPDATE", (self._bus,))

    def make_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Create partitions, each by its topic and id."""
        statement = f"INSERT INTO {SCHEMA}.partition (bus, topic, partition_id) VALUES (%s, %s, %s)"
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, [(self._bus, topic, partition_id) for topic, partition_id in partitions])

    def lock_ends(self, numbers: Sequence[int]) -> Mapping[int, End]:
        """Keep other transactions from publishing to partitions, and return the ends of these."""
        rows = self._connection.execute(
            f"SELECT number, end_offset, last_published_at FROM {SCHEMA}.partition WHERE number = ANY(%s) "
            "ORDER BY number FOR UPDATE",
            (list(numbers),),
        )
        return {number: End(offset, at) for number, offset, at in rows}

    def append(self, messages: Iterator[Message]) -> None:
        """Add messages."""
        statement = f"COPY {SCHEMA}.message (partition, place, published_at, body) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int8", "int8", "int8", "bytea"])
            for message in messages:
                copy.write_row(message)

    def move_ends(self, ends: Mapping[int, End]) -> None:
        """Set the ends of partitions."""
        statement = f"UPDATE {SCHEMA}.partition SET end_offset = %s, last_published_at = %s WHERE number = %s"
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, [(*end, number) for number, end in ends.items()])

    def commit_offsets(self, group: str, offsets: Mapping[int, int], at: int) -> None:
        """Record offsets of a consumer group."""
        statement = (
            f"INSERT INTO {SCHEMA}.committed_offset (consumer_group, partition, next_offset, committed_at) "
            "VALUES (%s, %s, %s, %s) ON CONFLICT (consumer_group, partition) "
            "DO UPDATE SET next_offset = excluded.next_offset, committed_at = excluded.committed_at"
        )
        with self._connection.cursor() as cursor:  # in a fixed order, or two transactions could deadlock
            cursor.executemany(statement, [(group, number, offset, at) for number, offset in sorted(offsets.items())])

    def lock_partition(self, number: int) -> None:
        """Keep other transactions from trimming a partition."""
        self._connection.execute(f"SELECT number FROM {SCHEMA}.partition WHERE number = %s FOR UPDATE", (number,))

    def drop(self, number: int, first: int, end: int) -> int:
        """Drop the messages of a partition with first <= offset < end; return their number."""
        gone = f"DELETE FROM {SCHEMA}.message WHERE partition = %s AND place >= %s AND place < %s"
        count = self._connection.execute(gone, (number, first, end)).rowcount
        self._connection.execute(f"UPDATE {SCHEMA}.partition SET first_offset = %s WHERE number = %s", (end, number))
        return count
