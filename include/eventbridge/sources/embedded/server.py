"""The connection of an embedded bus on a PostgreSQL server: schema, transactions, reconnection after a restart.

Used by `eventbridge.sources.embedded.server_tables` only.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, Error, IsolationLevel, OperationalError, connect
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url

from eventbridge.errors import BusError
from eventbridge.server_away import NOTICES_DEATH, may_come_back

BUSY_SECONDS = 30.0

#: Buses have a schema of their own, beside the ledger's tables.
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
    place        bigint NOT NULL,
    published_at bigint NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (partition, place)
);
CREATE TABLE IF NOT EXISTS {SCHEMA}.committed_offset (
    consumer_group text COLLATE "C" NOT NULL,
    partition      bigint NOT NULL REFERENCES {SCHEMA}.partition,
    next_offset    bigint NOT NULL,
    committed_at   bigint NOT NULL,
    PRIMARY KEY (consumer_group, partition)
);
"""
#: The advisory lock that keeps two processes from creating the tables at once: an arbitrary number.
_MAKING_LOCK = 5_311_007_322_684_716_162

_SETTINGS = f"""
SELECT set_config('lock_timeout', '{BUSY_SECONDS:.0f}s', false),
       set_config('statement_timeout', '120s', false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       set_config('default_transaction_read_only', 'off', false),
       -- what publish has returned is on disk, whatever the server's default is
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
        with self._alone():
            try:
                return self._connection.execute(statement, values).fetchall()
            except OperationalError:
                if self._in_transaction or not self._connection.closed:
                    raise
            self._connection = self._connect()
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several statements see one consistent state of the bus."""
        with self._alone():
            self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield
            finally:
                self._undo()

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """Make the statements one transaction, durable when the block ends, rolled back if it raises.

        Only BEGIN is repeated if the connection was lost: nothing has been done by then. If the response to a commit is
        lost, its result is unknown, and BusError says that the events may have been published.
        """
        with self._alone():
            # each statement sees what others have committed by then: rows are locked before they are decided by
            self._begin("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            try:
                yield self._connection
            except BaseException:
                self._undo()
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

    def _undo(self) -> None:
        self._in_transaction = False
        if not self._connection.closed:
            self._connection.rollback()

    @contextmanager
    def _alone(self) -> Iterator[None]:
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
    """Return libpq's options of a ledger's URL, parsed as the ledger parses it."""
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    _, options = parsed.get_dialect()().create_connect_args(parsed)
    return dict(options)
