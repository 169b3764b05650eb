"""Keeps ledgers in a PostgreSQL database, with row locks for any number of hosts and writers."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError

from eventbridge.clients.postgresql import NOTICES_DEATH, may_come_back
from eventbridge.errors import LedgerError, PackageMissing, UserError
from eventbridge.ledger.engines.compiled import CompiledStatements
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.engines.shown_url import redact_url
from eventbridge.ledger.remedies import ledger_errors

#: The driver that is used, whatever driver the URL names.
_DRIVER = "postgresql+psycopg"
_COMPILED = {"compiled_cache": CompiledStatements()}

#: The maximum time that the first connection waits for a server that is down; a process that was connected before waits
#: for as long as the busy timeout.
_OPENING_SECONDS = 5.0

#: The time limit of a statement. No statement of the ledger takes this long, because each reads or changes a bounded
#: number of rows through an index.
_STATEMENT_SECONDS = 120.0

#: A process that was stopped (SIGSTOP) inside a transaction loses it and its locks after this time. A running process
#: is never idle that long, because inside a transaction it waits only for the database.
_STOPPED_SECONDS = 60.0

#: The advisory lock that prevents two processes from migrating at the same time. The number is arbitrary.
_MIGRATION_LOCK = 5_311_007_322_684_716_161

#: SQLSTATEs of transactions that the server has rolled back and that may succeed when they run again.
_UNDONE = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "25P03",  # idle_in_transaction_session_timeout
    }
)

#: Messages of psycopg when it notices the end of a connection before libpq does, or during the rollback, in which case
#: SQLAlchemy considers the connection intact.
_CUT_OFF = ("connection socket closed", "another command is already in progress")

_REACH = "Make sure that the server is up and can be reached from this host (`pg_isready -h {host} -p {port}`)"
_ACTIVITY = "`SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database()`"

#: Maps a string in a message to the remedy; the first match counts.
_REMEDIES: Sequence[tuple[str, str]] = (
    (
        "password authentication failed",
        "Correct the user or the password in EVENTBRIDGE_LEDGER_URL, or in the output of its _CMD or _FILE",
    ),
    ("no password supplied", "Add a password to EVENTBRIDGE_LEDGER_URL, or set PGPASSFILE to a file that contains it"),
    (
        "pg_hba.conf",
        "Have the server's pg_hba.conf accept this host, user and database, or correct EVENTBRIDGE_LEDGER_URL",
    ),
    (
        'database "',
        "Create the database on its server (`createdb {file}`), run `eventbridge ledger migrate`, then this again; or "
        "correct EVENTBRIDGE_LEDGER_URL",
    ),
    ('role "', "Create the user on the server (`createuser`), or correct EVENTBRIDGE_LEDGER_URL"),
    (
        "permission denied",
        "Give the user of EVENTBRIDGE_LEDGER_URL its own schema, or all rights in it "
        "(`GRANT ALL ON SCHEMA public TO <user>` and on its tables)",
    ),
    (
        "lock timeout",
        f"Another session has held rows of the ledger for longer than the busy timeout: find it with {_ACTIVITY}, let "
        "it finish or end it, then run this again",
    ),
    (
        "statement timeout",
        f"The server took longer than any statement of the ledger needs: find the cause with {_ACTIVITY}, then "
        "run this again",
    ),
    (
        "too many clients",
        "Raise max_connections of the server: each process of eventbridge keeps one connection; then run this again",
    ),
    ("connection slots", "Raise max_connections of the server, then run this again"),
    ("no space left", "The disk of the database's server is full: free some space there, then run this again"),
    ("read-only transaction", "This server is a standby: name the primary in EVENTBRIDGE_LEDGER_URL"),
    ("resolve host", "Correct the host in EVENTBRIDGE_LEDGER_URL, or this host's name service"),
    ("connection to server", _REACH),
    ("connection", _REACH),
    ("the database system is", _REACH),
)


class PostgresqlEngine:
    """The engine of one database of a server; see LedgerEngine."""

    spans_hosts = True
    migrates_when_opened = False
    # READ COMMITTED, regardless of the server's default, so that each statement reads all earlier commits.
    # `batches.plan` depends on this level: its insert waits for the commit of the previous batch, and the offsets that
    # `plan` then reads must be those that this commit moved. With an earlier snapshot, as in REPEATABLE READ and
    # SERIALIZABLE, it would plan the same offsets again, or be refused and have to restart. Rows on which a transaction
    # decides are locked (FOR SHARE, FOR UPDATE) or compared and set.
    begin_writing = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    # One snapshot of the ledger for all queries of a transaction; it neither waits for writers nor blocks them.
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    bounds_readers = False
    remedies: Sequence[tuple[str, str]] = _REMEDIES

    def __init__(self, url: URL, busy_timeout_seconds: float) -> None:
        self.url = url.set(drivername=_DRIVER)
        self._busy_timeout_seconds = busy_timeout_seconds
        self._clock = PostgresqlClock(self)
        self._was_connected = False

    def connect(self) -> Connection:
        """Open a connection; wait for a server that restarts."""
        patience = self._busy_timeout_seconds
        until = time.monotonic() + (patience if self._was_connected else min(patience, _OPENING_SECONDS))
        while True:
            try:
                connection = self._pool.connect()
            except OperationalError as error:
                if time.monotonic() > until or not may_come_back(str(error.orig)):
                    raise
                time.sleep(random.uniform(0.05, 0.25))  # random, so that processes do not all connect at the same time
            else:
                self._was_connected = True
                return connection

    def turn_to_write(self) -> AbstractContextManager[None]:
        """Do nothing: writes lock their rows."""
        return nullcontext()

    @contextmanager
    def migrating(self, connection: Connection) -> Iterator[None]:
        """Exclude others by an advisory lock; afterwards make text columns compare byte by byte, as in SQLite."""
        self._prove_encoding(connection)
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # indexing many rows takes long
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        yield
        _compare_bytes(connection)

    def now(self) -> datetime:
        """Return the server's time, computed from its difference from a clock of the host. The difference is measured
        once a minute."""
        return self._clock.now()

    def last_number(self, connection: Connection, table: str, column: str) -> int:
        """Return the last generated number."""
        sequence = f"pg_sequence_last_value(pg_get_serial_sequence('{table}', '{column}')::regclass)"
        return int(connection.exec_driver_sql(f"SELECT coalesce({sequence}, 0)").scalar_one())

    def count_on(self, connection: Connection, table: str, column: str, number: int) -> None:
        """Make the numbering continue after this number."""
        if number:
            sequence = f"pg_get_serial_sequence('{table}', '{column}')"
            connection.exec_driver_sql(f"SELECT setval({sequence}, {number:d})")

    def drop_old_pages(self) -> None:
        """Raise UserError: the server keeps old rows until it vacuums, and in its log, which is not in our hands."""
        raise UserError("The ledger is in PostgreSQL, which keeps old rows: events cannot be erased from it yet")

    def may_run_again(self, error: BaseException) -> bool:
        """Return whether the server rolled the transaction back, or the connection was lost before the commit."""
        if not isinstance(error, DBAPIError):
            return False
        if error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _UNDONE:
            return True
        return any(words in str(error.orig) for words in _CUT_OFF)

    def is_full(self, cause: str) -> bool:
        """Return False, because a full disk is the server's and `remedies` covers its message."""
        return False

    def reader(self, limit_seconds: float) -> Engine:
        """Return a factory of read-only connections; connecting itself may take two seconds."""
        options = {"connect_timeout": 2, "autocommit": True}
        pool = create_engine(
            self.url, execution_options=_COMPILED, poolclass=NullPool, connect_args=options, use_native_hstore=False
        )
        limits = {"statement_timeout": limit_seconds, "lock_timeout": limit_seconds}
        event.listen(pool, "connect", partial(_set_up, limits, "on"))
        return pool

    @cached_property
    def _pool(self) -> Engine:
        # The ledger begins transactions explicitly, so for the driver each statement is its own transaction.
        options: dict[str, Any] = {
            "autocommit": True,
            "application_name": "eventbridge",
            "client_encoding": "UTF8",
            "connect_timeout": max(2, math.ceil(min(self._busy_timeout_seconds, 10))),
            **NOTICES_DEATH,
        }
        options = {name: value for name, value in options.items() if name not in self.url.query}
        try:
            pool = create_engine(
                self.url, execution_options=_COMPILED, poolclass=NullPool, connect_args=options, use_native_hstore=False
            )
        except ModuleNotFoundError as error:
            raise PackageMissing.from_import_error(error) or error from None
        limits = {
            "statement_timeout": max(_STATEMENT_SECONDS, self._busy_timeout_seconds),
            "lock_timeout": self._busy_timeout_seconds,
            "idle_in_transaction_session_timeout": _STOPPED_SECONDS,
        }
        event.listen(pool, "connect", partial(_set_up, limits, "off"))
        return pool

    def _prove_encoding(self, connection: Connection) -> None:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            shown = redact_url(self.url)
            raise LedgerError(
                f"Ledger {shown}: the encoding of its database is {encoding}, but it must be UTF8. Create another "
                f"database: `createdb -T template0 -E UTF8 NAME`; nothing was changed."
            )


#: An acknowledged commit survives a crash of the server, regardless of the server's default.
_DURABLE = "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)"


def _set_up(limits: dict[str, float], read_only: str, connection: Any, _record: object) -> None:
    """Set the limits of a session, in seconds, with a statement: poolers refuse them as startup parameters."""
    wanted = {name: str(max(1, round(seconds * 1000))) for name, seconds in limits.items()}
    wanted |= {"default_transaction_read_only": read_only}
    calls = ", ".join(["set_config(%s, %s, false)"] * len(wanted))
    connection.execute(f"SELECT {calls}, {_DURABLE}", [each for pair in wanted.items() for each in pair]).close()


def _compare_bytes(connection: Connection) -> None:
    """Set the collation of every text column to "C", the order of SQLite and Python.

    With a database's own collation, "a-10" may sort before "a-2", or "B" after "a", and another version of the
    collation library may sort differently from an existing index.
    """
    columns = connection.exec_driver_sql(
        "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables "
        "USING (table_schema, table_name) WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' "
        "AND data_type IN ('text', 'character varying') AND collation_name IS DISTINCT FROM 'C' "
        "ORDER BY table_name, ordinal_position"
    ).all()
    changes: dict[str, list[str]] = {}
    for table, column in columns:
        changes.setdefault(table, []).append(f'ALTER COLUMN "{column}" TYPE text COLLATE "C"')
    for table, each in changes.items():
        connection.exec_driver_sql(f'ALTER TABLE "{table}" {", ".join(each)}')


#: A clock that also advances while the machine sleeps, if there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: The maximum age of a measurement: two clocks drift apart by a few microseconds per second.
_KEPT_SECONDS = 60.0

#: The time for which the last measurement is used before a server that did not respond is queried again.
_AGAIN_SECONDS = 5.0

#: The maximum time that a server may take to return the time if a previous measurement can be used instead.
_RESPONSE_SECONDS = 2.0


class PostgresqlClock:
    """A server's clock, as a difference from a clock of this host; thread-safe.

    The host's clock is one that cannot be set and that also advances while the machine sleeps.
    """

    def __init__(self, engine: LedgerEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._measured: tuple[datetime, float] | None = None
        self._due = 0.0

    def now(self) -> datetime:
        """Return the server's time, aware, in UTC. Raises LedgerError if it was never measured and cannot be now."""
        measured = self._measured
        if measured is None or _elapsed() >= self._due:
            measured = self._measure()
        at, elapsed = measured
        return at + timedelta(seconds=_elapsed() - elapsed)

    @cached_property
    def _reader(self) -> Engine:
        return self._engine.reader(_RESPONSE_SECONDS)

    def _measure(self) -> tuple[datetime, float]:
        if not self._lock.acquire(blocking=self._measured is None):
            assert self._measured is not None
            return self._measured  # another thread is measuring it
        try:
            if self._measured is None or _elapsed() >= self._due:
                self._measured, self._due = self._query_time(self._measured is None), _elapsed() + _KEPT_SECONDS
        except LedgerError:
            if self._measured is None:
                raise
            self._due = _elapsed() + _AGAIN_SECONDS
        finally:
            self._lock.release()
        assert self._measured is not None
        return self._measured

    def _query_time(self, patient: bool) -> tuple[datetime, float]:
        """Query the server's time; only a `patient` caller waits for a server that is down."""
        with ledger_errors(self._engine):
            connection = self._engine.connect() if patient else self._reader.connect()
            try:
                before = _elapsed()
                at = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
                after = _elapsed()
            finally:
                connection.close()
        return at.astimezone(UTC), (before + after) / 2


def _elapsed() -> float:
    return time.clock_gettime(_CLOCK)
