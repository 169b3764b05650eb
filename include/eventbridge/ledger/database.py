"""The ledger's one connection to its database: transactions, locks between threads, nothing for a fork to inherit."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from eventbridge import faults
from eventbridge.errors import SettingsError
from eventbridge.ledger.remedies import LOCKED, ledger_errors
from eventbridge.ledger.turns import turn_to_write

Clock = Callable[[], datetime]

BUSY_TIMEOUT_SECONDS = 30.0
_SET_URL = "Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>, or to the postgresql URL of a database of its own."

#: Guards the set below; taken before any database's own lock, never after.
_registering = threading.RLock()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_forking: list[Database] = []


def utc_now() -> datetime:
    """Return the time of this machine, aware, in UTC."""
    return datetime.now(UTC)


class Database:
    """One database, used through one connection by any thread of this process, one transaction at a time.

    A transaction never sees anything but the database: no files, no network, no callbacks inside.
    `clock` is the ledger's clock. Every error of SQLAlchemy leaves as LedgerError.
    """

    def __init__(self, url: str, clock: Clock = utc_now, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> None:
        self._url = _checked(url)
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._busy_timeout_seconds = busy_timeout_seconds
        self._engine = self._make_engine()
        with _registering:
            _databases.add(self)

    def now(self) -> datetime:
        """Return the time by the ledger's clock, which leases and due times use."""
        return self._clock()

    def close(self) -> None:
        """Let go of the connection; a later call opens it again."""
        with self._lock, ledger_errors(self._url):
            self._drop()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Run a transaction that changes the ledger: as a whole, or not at all if anything is raised inside."""
        with self._lock, ledger_errors(self._url), self._turn(), self._connected() as connection:
            with connection.begin() as transaction:
                if self._sqlite:
                    # the lock at once: a transaction that began by reading could not get it without starting over
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
                faults.reach("ledger.commit")
                transaction.commit()
            faults.reach("ledger.commit.done")

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Run a transaction that only reads: it sees one moment of the ledger, waits for nobody, hinders nobody."""
        with (
            self._lock,
            ledger_errors(self._url),
            self._connected() as connection,
            connection.begin() as transaction,
        ):
            if self._sqlite:
                connection.exec_driver_sql("BEGIN")
            yield connection
            transaction.rollback()

    def _turn(self) -> AbstractContextManager[None]:
        return turn_to_write(self._url, self._busy_timeout_seconds) if self._sqlite else nullcontext()

    def _make_engine(self) -> Engine:
        # The one connection is kept: whenever the last one closes, SQLite makes a checkpoint and several fsyncs.
        options = {"timeout": self._busy_timeout_seconds, "check_same_thread": False} if self._sqlite else {}
        with ledger_errors(self._url):
            try:
                engine = create_engine(self._url, poolclass=NullPool, connect_args=options)
            except ModuleNotFoundError as error:
                shown = self._url.render_as_string(hide_password=True)
                told = f"Ledger {shown}: its driver is missing. Run `pip install {error.name}`."
                raise SettingsError(told) from error
        if self._sqlite:
            event.listen(engine, "connect", partial(_set_up_sqlite, self._busy_timeout_seconds))
        event.listen(engine, "before_cursor_execute", _reach_execute)
        return engine

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            yield self._connection
        except BaseException:
            self._drop()  # whatever went wrong, the next transaction begins with a connection that is known to be good
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _checked(text: str) -> URL:
    """Return the URL with a file's path made absolute; raises SettingsError for what cannot hold a ledger."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # what it says may hold a password
        raise SettingsError(f"The ledger's URL cannot be read as one. {_SET_URL}") from None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise SettingsError(f"No ledger can be kept in {url.render_as_string(hide_password=True)}. {_SET_URL}")
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise SettingsError(f"A ledger in memory forgets what it must not. {_SET_URL}")
        # a process may change its folder between two connections
        url = url.set(database=str(Path(str(url.database)).absolute()))
    return url


def _set_up_sqlite(patience_seconds: float, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_writing` and `_reading` say so
    cursor = connection.cursor()
    _keep_a_log_ahead(cursor, patience_seconds)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _keep_a_log_ahead(cursor: Any, patience_seconds: float) -> None:
    """Switch a new file to a write-ahead log, which only one connection can do at a time.

    SQLite refuses the others at once, whatever the busy timeout: they would wait for one another.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if LOCKED not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _reach_execute(_connection: object, _cursor: object, statement: str, *_: object) -> None:
    if statement == "BEGIN IMMEDIATE":
        faults.reach("ledger.begin")
    elif statement.startswith(("SELECT", "WITH")) or statement == "BEGIN":
        faults.reach("ledger.select")
    else:
        faults.reach("ledger.execute")


# SQLite counts the locks of a file by process, in memory that a fork copies: a child that opens a file which its parent
# has open takes no lock of its own, and what it commits is gone when the parent closes. (Seen, not feared: a test
# shows it.) So no connection is open while this process forks.


def _before_fork() -> None:
    _registering.acquire()
    _forking.extend(_databases)
    for database in _forking:
        database._lock.acquire()
        database.close()


def _after_fork() -> None:
    while _forking:
        _forking.pop()._lock.release()
    _registering.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
