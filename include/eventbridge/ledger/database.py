"""The ledger's one connection to its database: transactions, locks between threads, nothing for a fork to inherit."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, NullPool, create_engine, event, make_url

from eventbridge import faults
from eventbridge.errors import LedgerError
from eventbridge.ledger.remedies import ledger_errors

Clock = Callable[[], datetime]

BUSY_TIMEOUT_SECONDS = 30.0

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
        with ledger_errors(self._url):
            # a connection that is kept and one that is opened for each transaction differ by a WAL checkpoint
            # and several fsyncs: SQLite does both whenever the last connection closes
            options = {"timeout": busy_timeout_seconds, "check_same_thread": False} if self._sqlite else {}
            try:
                self._engine = create_engine(self._url, poolclass=NullPool, connect_args=options)
            except ModuleNotFoundError as error:
                raise LedgerError(
                    f"Ledger {self._url.render_as_string()}: its driver is not installed ({error}). "
                    f"Run `pip install {error.name}`."
                ) from error
        if self._sqlite:
            event.listen(self._engine, "connect", _set_up_sqlite)
        event.listen(self._engine, "before_cursor_execute", _reach_execute)
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
        with self._lock, ledger_errors(self._url):
            connection = self._connect()
            try:
                with connection.begin() as transaction:
                    if self._sqlite:
                        # the lock at once: a transaction that began by reading could not get it without starting over
                        connection.exec_driver_sql("BEGIN IMMEDIATE")
                    yield connection
                    faults.reach("ledger.commit")
                    transaction.commit()
                    faults.reach("ledger.commit.done")
            except BaseException:
                self._drop()
                raise

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Run a transaction that only reads: it sees one moment of the ledger, waits for nobody, hinders nobody."""
        with self._lock, ledger_errors(self._url):
            connection = self._connect()
            try:
                with connection.begin() as transaction:
                    if self._sqlite:
                        connection.exec_driver_sql("BEGIN")
                    yield connection
                    transaction.rollback()
            except BaseException:
                self._drop()
                raise

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _checked(text: str) -> URL:
    """Return the URL with a file's path made absolute; raises LedgerError for what cannot hold a ledger."""
    with ledger_errors(make_url("sqlite://")):
        url = make_url(text)
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        shown = url.render_as_string(hide_password=True)
        raise LedgerError(f"No ledger can be kept in {shown}. Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>.")
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise LedgerError("A ledger in memory forgets. Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>.")
        # a process may change its folder between two connections
        url = url.set(database=str(Path(str(url.database)).absolute()))
    return url


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_writing` and `_reading` say so
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _reach_execute(*_: object) -> None:
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
