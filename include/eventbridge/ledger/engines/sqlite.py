"""Keeps a ledger in a SQLite file, for one host, with a write-ahead log and one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event

from eventbridge.errors import SettingsError, UserError
from eventbridge.files import close_to_others, files_of_database, is_disk_full, open_private
from eventbridge.ledger.engines.compiled import CompiledStatements
from eventbridge.ledger.remedies import DatabaseFailure

# Messages of SQLite.
_LOCKED = "database is locked"
_FULL = "database or disk is full"
_UNOPENABLE = "unable to open database file"
_IO_ERROR = "disk I/O error"
_COMPILED = {"compiled_cache": CompiledStatements()}


class SqliteEngine:
    """The engine of one file; see LedgerEngine."""

    spans_hosts = False
    migrates_when_opened = True
    # This statement takes the lock immediately; a transaction that began by reading might have to restart to get it.
    begin_writing = "BEGIN IMMEDIATE"
    begin_reading = "BEGIN"
    bounds_readers = True
    remedies: Sequence[tuple[str, str]] = (
        (
            _LOCKED,
            "Another process has held the ledger for longer than the busy timeout: find it with `fuser -v {file} "
            "{file}.lock`, let it finish or end it, then run this again",
        ),
        (
            "readonly database",
            "Give this process write permission for {file} and for its folder {folder} "
            "(`ls -ld {folder} {file}` shows who owns them)",
        ),
        (
            "file is not a database",
            "{file} is not a ledger: correct EVENTBRIDGE_LEDGER_URL, or restore the ledger from a backup",
        ),
        (
            "disk image is malformed",
            "{file} is damaged: restore the ledger from a backup; the store still has every event and manifest",
        ),
        (
            _UNOPENABLE,
            "Make sure that the folder {folder} exists (`mkdir -p {folder}`) and that this process may write to it "
            "(`ls -ld {folder}`)",
        ),
        (_IO_ERROR, "Check the disk that contains {folder} (`dmesg`, `df -h {folder}`), then run this again"),
    )

    def __init__(self, url: URL, busy_timeout_seconds: float) -> None:
        if url.database in (None, "", ":memory:"):
            raise SettingsError(
                "A ledger in memory is lost with its process. Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>."
            )
        # a process may change its working folder between two connections
        self.url = url.set(database=str(Path(str(url.database)).absolute()))
        self._file = Path(str(self.url.database))
        self._busy_timeout_seconds = busy_timeout_seconds
        options = {"timeout": busy_timeout_seconds, "check_same_thread": False}
        self._pool = create_engine(self.url, execution_options=_COMPILED, poolclass=NullPool, connect_args=options)
        event.listen(self._pool, "connect", partial(_set_up, busy_timeout_seconds))
        for each in files_of_database(self._file):
            close_to_others(each)

    def connect(self) -> Connection:
        """Open a connection; create the file, accessible to its owner only, if it does not exist."""
        if not self._file.exists():
            with suppress(OSError):  # SQLite has a better message
                os.close(open_private(self._file, os.O_RDWR))
        return self._pool.connect()

    def turn_to_write(self) -> AbstractContextManager[None]:
        """Exclude all other writers, by a lock on `<file>.lock`."""
        return _hold_write_lock(self._file, self._busy_timeout_seconds)

    def migrating(self, connection: Connection) -> AbstractContextManager[None]:
        """Do nothing: SQLite has one writer at a time."""
        return nullcontext()

    def now(self) -> datetime:
        """Return the host's time: SQLite's only clock is the clock of the one host that uses the file."""
        return datetime.now(UTC)

    def last_number(self, connection: Connection, table: str, column: str) -> int:
        """Return the last generated number."""
        found = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).scalar()
        return int(found or 0)

    def count_on(self, connection: Connection, table: str, column: str, number: int) -> None:
        """Make the numbering continue after this number."""
        connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))

    def drop_old_pages(self) -> None:
        """Rewrite the file and empty its write-ahead log. Raises UserError if another process reads it all the time."""
        seconds = self._busy_timeout_seconds
        # VACUUM runs in no transaction, so the connection begins none
        with self.turn_to_write(), closing(sqlite3.connect(self._file, seconds, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise UserError(f"{self._file}: a process reads the ledger, so that old pages stay. Run the command again")

    def may_run_again(self, error: BaseException) -> bool:
        """Return False, because a file has no connection to lose and a single writer cannot deadlock."""
        return False

    def is_full(self, cause: str) -> bool:
        """Return whether the disk is full, which SQLite may also report as an I/O error."""
        return _FULL in cause or (_IO_ERROR in cause and is_disk_full(self._file))

    def reader(self, limit_seconds: float) -> Engine:
        """Return a factory of read-only connections; SQLite itself limits their waits."""
        if not self._file.exists():  # SQLite would create an empty one
            raise FileNotFoundError(f"there is no ledger at {self._file}")
        # NullPool, because processes that fork from this one must not share its connection
        pool = create_engine(self.url, execution_options=_COMPILED, poolclass=NullPool)
        event.listen(pool, "connect", partial(_set_up_reader, limit_seconds))
        return pool


def _set_up(patience_seconds: float, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the ledger begins transactions explicitly
    cursor = connection.cursor()
    _switch_to_wal(cursor, patience_seconds)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _set_up_reader(limit_seconds: float, connection: Any, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(limit_seconds * 1000)}")
    connection.execute("PRAGMA query_only = ON")


def _switch_to_wal(cursor: Any, patience_seconds: float) -> None:
    """Switch a new file to a write-ahead log; only one connection can do this at a time.

    SQLite refuses the others immediately, without the busy timeout, because they would deadlock.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _LOCKED not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def _hold_write_lock(file: Path, timeout_seconds: float) -> Iterator[None]:
    """Exclude all other writers, of this and other processes, by a lock on `<file>.lock`. Raises DatabaseFailure.

    SQLite's own lock lets a commit run at the same time as another connection's checkpoint, which in all versions
    before 3.51.3 can, rarely, lose committed pages (https://sqlite.org/wal.html#walresetbug). Checkpoints run at the
    end of a commit, so this lock separates the two. It also waits in finer steps than SQLite does.
    """
    try:
        descriptor = open_private(f"{file}.lock", os.O_RDWR)
    except OSError as error:
        cause = _FULL if error.errno == errno.ENOSPC else f"{_UNOPENABLE} ({error.strerror}: {error.filename})"
        raise DatabaseFailure(cause) from error
    try:
        _wait_for(descriptor, timeout_seconds)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds  # flock has no time limit
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DatabaseFailure(_LOCKED) from None
        time.sleep(random.uniform(0.0002, 0.002))
