"""Keeps the tables of an embedded bus on a PostgreSQL server, for several hosts."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from psycopg import Connection, Error, IsolationLevel, OperationalError, connect
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url

from eventbridge.clients.postgresql import NOTICES_DEATH, may_come_back
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.table_log import TableLog
from eventbridge.sources.embedded.tables import PAGE_BYTES, PAGE_MESSAGES, End, Message

#: The time that a transaction waits for another process's transaction before it fails, as with a file.
BUSY_SECONDS = 30.0

#: The database schema of buses, separate from the ledger's tables.
SCHEMA = "eventbridge_bus"

_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.bus (
    name     text COLLATE "C" PRIMARY KEY,
    identity text NOT NULL
);
CREATE TABLE IF NOT EXISTS {SCHEMA}.partition (
    number            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bus               text COLLATE "C" NOT NULL REFERENCES {SCHEMA}.bus,
    topic             text COLLATE "C" NOT NULL,
    partition_id      integer NOT NULL,
    first_offset      bigint NOT NULL DEFAULT 0,
    end_offset        bigint NOT NULL DEFAULT 0,
    last_published_at bigint NOT NULL DEFAULT 0,
    UNIQUE (bus, topic, partition_id)
);
CREATE TABLE IF NOT EXISTS {SCHEMA}.message (
    partition    bigint NOT NULL,
    message_offset bigint NOT NULL,
    published_at bigint NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (partition, message_offset)
);
CREATE TABLE IF NOT EXISTS {SCHEMA}.committed_offset (
    consumer_group text COLLATE "C" NOT NULL,
    partition      bigint NOT NULL REFERENCES {SCHEMA}.partition,
    next_offset    bigint NOT NULL,
    committed_at   bigint NOT NULL,
    PRIMARY KEY (consumer_group, partition)
);
"""
#: The advisory lock that keeps two processes from creating the tables at the same time. The number is arbitrary.
_MAKING_LOCK = 5_311_007_322_684_716_162

_SETTINGS = f"""
SELECT set_config('lock_timeout', '{BUSY_SECONDS:.0f}s', false),
       set_config('statement_timeout', '120s', false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       set_config('default_transaction_read_only', 'off', false),
       -- once publish has returned, its messages are on disk, regardless of the server's default
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)
"""


#: Defaults of a connection; the ledger's URL may override them.
_OPTIONS: Mapping[str, Any] = {"connect_timeout": 10, "application_name": "eventbridge bus", **NOTICES_DEATH}


class BusServer:
    """One bus on a server: runs single statements (`rows`), or a durable transaction (`writing`).

    Threads may share it; a process forked from its opener may not use it. It waits for a server that restarts.
    """

    def __init__(self, url: str, bus: str) -> None:
        known = _parts(url)
        self.uri = f"postgresql://{known.get('host', 'localhost')}:{known.get('port', 5432)}/{known.get('dbname', '')}"
        self.uri += f"#{bus}"
        self._bus = bus
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._in_transaction = False
        with self._errors():
            self._conninfo = make_conninfo(**{**_OPTIONS, **known})
            self._connection = self._connect()
        try:
            self.identity = self._find_identity()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._connection.close()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one read-only statement; it is repeated if the connection was lost."""
        with self._exclusively():
            try:
                return self._connection.execute(statement, values).fetchall()
            except OperationalError:
                if self._in_transaction or not self._connection.closed:
                    raise
            self._connection = self._connect()
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several statements read one consistent state of the bus."""
        with self._exclusively():
            self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield
            finally:
                self._roll_back()

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """Run the statements as one transaction; it is durable when the block ends, rolled back if it raises.

        If the connection was lost, only BEGIN is repeated, because nothing has been done by then. If the response to a
        commit is lost, its result is unknown, and BusError is raised although the messages may have been published.
        """
        with self._exclusively():
            # each statement reads all earlier commits; rows are locked before a decision depends on them
            self._begin("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            try:
                yield self._connection
            except BaseException:
                self._roll_back()
                raise
            self._in_transaction = False
            self._connection.commit()

    def _begin(self, statement: str) -> None:
        try:
            self._connection.execute(statement)
        except OperationalError:
            if not self._connection.closed:
                raise
            self._connection = self._connect()
            self._connection.execute(statement)
        self._in_transaction = True

    def _roll_back(self) -> None:
        self._in_transaction = False
        if not self._connection.closed:
            self._connection.rollback()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise BusError(f"{self.uri}: this process was forked from the one that opened the bus. Open it again")
        with self._turn, self._errors():
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            reason = " ".join(str(error).split())
            raise BusError(
                f"{self.uri}: {reason}. Check that the server is up and that the ledger's user may use the schema "
                f"{SCHEMA}, then run this again"
            ) from error

    def _connect(self) -> Connection[Any]:
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection = connect(self._conninfo, autocommit=True)
                connection.execute(_SETTINGS)
            except OperationalError as error:
                if time.monotonic() > until or not may_come_back(str(error)):
                    raise
                time.sleep(random.uniform(0.05, 0.25))
            else:
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                return connection

    def _find_identity(self) -> str:
        ((made,),) = self.rows("SELECT to_regclass(%s) IS NOT NULL", (f"{SCHEMA}.committed_offset",))
        if not made:
            with self.writing() as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING_LOCK,))
                connection.execute(_TABLES)
        query = f"SELECT identity FROM {SCHEMA}.bus WHERE name = %s"
        if not self.rows(query, (self._bus,)):
            with self.writing() as connection:
                new = f"INSERT INTO {SCHEMA}.bus (name, identity) VALUES (%s, %s) ON CONFLICT DO NOTHING"
                connection.execute(new, (self._bus, str(uuid.uuid4())))
        ((identity,),) = self.rows(query, (self._bus,))
        return str(identity)


def _parts(url: str) -> Mapping[str, Any]:
    """Return the libpq options in a ledger's URL, parsed in the same way as by the ledger."""
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    _, options = parsed.get_dialect()().create_connect_args(parsed)
    return dict(options)


#: The query for a page: at most PAGE_MESSAGES messages, cut off where their bodies exceed PAGE_BYTES. A body's size
#: is known without reading it.
_PAGE = (
    "SELECT message_offset, published_at, body FROM ("
    "SELECT *, sum(octet_length(body)) OVER (ORDER BY message_offset) AS so_far FROM ("
    f"SELECT * FROM {SCHEMA}.message WHERE partition = %s AND message_offset >= %s AND message_offset < %s "
    f"ORDER BY message_offset LIMIT {PAGE_MESSAGES}) AS next) AS counted "
    f"WHERE so_far - octet_length(body) < {PAGE_BYTES} ORDER BY message_offset"
)


class ServerTables:
    """The tables on a server, created if they do not exist; implements `tables.Tables`."""

    storage = "database"

    def __init__(self, url: str, bus: str) -> None:
        self._bus = bus
        self._server = BusServer(url, bus)
        self.name = self.uri = self._server.uri
        self.identity = self._server.identity

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def snapshot(self) -> AbstractContextManager[object]:
        """Let several queries read one consistent state of the bus."""
        return self._server.snapshot()

    @contextmanager
    def writing(self) -> Iterator[ServerWriter]:
        """Run the block as one transaction; it is durable when the block ends, rolled back if it raises."""
        with self._server.writing() as connection:
            yield ServerWriter(connection, self._bus)

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return the topic, id and number of each partition."""
        return self._server.rows(
            f"SELECT topic, partition_id, number FROM {SCHEMA}.partition WHERE bus = %s", (self._bus,)
        )

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return the number and end offset of each partition."""
        return self._server.rows(f"SELECT number, end_offset FROM {SCHEMA}.partition WHERE bus = %s", (self._bus,))

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset that a partition still holds, and its end offset."""
        query = f"SELECT first_offset, end_offset FROM {SCHEMA}.partition WHERE number = %s"
        ((first, end),) = self._server.rows(query, (number,))
        return first, end

    def published_at(self, number: int, offset: int) -> int:
        """Return when a stored message was published, in microseconds since 1970."""
        query = f"SELECT published_at FROM {SCHEMA}.message WHERE partition = %s AND message_offset = %s"
        return int(self._server.rows(query, (number, offset))[0][0])

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return the first page of a range's messages."""
        return self._server.rows(_PAGE, (number, start, end))

    def committed(self, group: str) -> Iterable[tuple[int, int]]:
        """Return the number and committed offset of each partition of a consumer group."""
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
        """Keep other transactions from publishing to partitions, and return the ends of the partitions."""
        rows = self._connection.execute(
            f"SELECT number, end_offset, last_published_at FROM {SCHEMA}.partition WHERE number = ANY(%s) "
            "ORDER BY number FOR UPDATE",
            (list(numbers),),
        )
        return {number: End(offset, at) for number, offset, at in rows}

    def append(self, messages: Iterator[Message]) -> None:
        """Add messages."""
        statement = f"COPY {SCHEMA}.message (partition, message_offset, published_at, body) FROM STDIN (FORMAT BINARY)"
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
        with self._connection.cursor() as cursor:  # in a fixed order, because two transactions could otherwise deadlock
            cursor.executemany(statement, [(group, number, offset, at) for number, offset in sorted(offsets.items())])

    def lock_partition(self, number: int) -> None:
        """Keep other transactions from trimming a partition."""
        self._connection.execute(f"SELECT number FROM {SCHEMA}.partition WHERE number = %s FOR UPDATE", (number,))

    def drop(self, number: int, first: int, end: int) -> int:
        """Drop the messages of a partition with first <= offset < end; return their number."""
        gone = f"DELETE FROM {SCHEMA}.message WHERE partition = %s AND message_offset >= %s AND message_offset < %s"
        count = self._connection.execute(gone, (number, first, end)).rowcount
        self._connection.execute(f"UPDATE {SCHEMA}.partition SET first_offset = %s WHERE number = %s", (end, number))
        return count


#: The time for which a result of `ends` is reused while the bus is followed.
_ENDS_HOLD_SECONDS = 0.02


class DatabaseBus(TableLog):
    """A log source in the database of a ledger; processes on any number of hosts may use it."""

    def __init__(
        self,
        url: str,
        bus: str,
        *,
        topics: Sequence[str] = ("events",),
        partitions: int = 4,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(bus, lambda: ServerTables(url, bus), topics=topics, partitions=partitions, clock=clock)
        self._followed = False
        self._ends: Mapping[Partition, int] = {}
        self._ends_until = 0.0

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition with one short query, cheap enough for several calls a second.

        While the bus is followed, a result is reused for 20 ms.
        """
        if time.monotonic() < self._ends_until:
            return self._ends
        found = super().ends()
        if self._followed:
            self._ends, self._ends_until = found, time.monotonic() + _ENDS_HOLD_SECONDS
        return found

    def follow(self, _positions: Mapping[Partition, int]) -> None:
        """Prepare for hundreds of calls of `ends` a second; nothing is fetched ahead."""
        self._followed = True
