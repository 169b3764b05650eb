"""Creates, opens, reads and writes the SQLite file of an embedded bus."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import secrets
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eventbridge.errors import BusError
from eventbridge.files import (
    close_to_others,
    files_of_database,
    full_disk_message,
    is_disk_full,
    make_private_folder,
    open_private,
)
from eventbridge.sources.embedded import tables
from eventbridge.sources.embedded.tables import End, Message, offset_of, position


class FileTables:
    """The tables in a file, which is created if it does not exist; implements `tables.Tables`."""

    storage = "file"

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.uri = path.absolute().as_uri()
        self._file = BusFile(path)
        self.identity = self._file.identity

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def snapshot(self) -> contextlib.AbstractContextManager[object]:
        """Let several queries read one consistent state of the bus."""
        return self._file.snapshot()

    @contextlib.contextmanager
    def writing(self) -> Iterator[FileWriter]:
        """Run the block as one exclusive transaction; it is on disk when the block ends, rolled back if it raises."""
        with self._file.writing() as connection:
            yield FileWriter(connection)

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return the topic, id and number of each partition."""
        return self._file.rows("SELECT topic, partition_id, number FROM partition")

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return the number and end offset of each partition."""
        return self._file.rows("SELECT number, end_offset FROM partition")

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset that a partition still holds, and its end offset."""
        ((first, end),) = self._file.rows("SELECT first_offset, end_offset FROM partition WHERE number = ?", (number,))
        return first, end

    def published_at(self, number: int, offset: int) -> int:
        """Return when a stored message was published, in microseconds since 1970."""
        packed = position(number, offset)
        return int(self._file.rows("SELECT published_at FROM message WHERE position = ?", (packed,))[0][0])

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return the first page of a range's messages."""
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
        """Return the number and committed offset of each partition of a consumer group."""
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


#: The time that a transaction waits for another process's transaction before it fails, as in the ledger.
BUSY_SECONDS = 30.0

#: "EvBu", which distinguishes an event bus from any other SQLite file.
_APPLICATION_ID = 0x45764275
_VERSION = 1

# A position is the partition's number in the high bits and the offset in the low ones (`position`):
# the primary key is then the row id, a range of a partition is contiguous in the table, and no second index is needed.
_SCHEMA = """
CREATE TABLE partition (
    number            INTEGER PRIMARY KEY,
    topic             TEXT    NOT NULL,
    partition_id      INTEGER NOT NULL,
    first_offset      INTEGER NOT NULL DEFAULT 0,
    end_offset        INTEGER NOT NULL DEFAULT 0,
    last_published_at INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition_id)
) STRICT;
CREATE TABLE message (
    position     INTEGER PRIMARY KEY,
    published_at INTEGER NOT NULL,
    body         BLOB    NOT NULL
) STRICT;
CREATE TABLE committed_offset (
    consumer_group TEXT    NOT NULL,
    partition      INTEGER NOT NULL REFERENCES partition (number),
    next_offset    INTEGER NOT NULL,
    committed_at   INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, partition)
) STRICT, WITHOUT ROWID;
"""
_META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"

_DAMAGED = "Move the file away, or restore it from a backup, and check the disk"
_DENIED = "Give the user that runs EventBridge write access to the file and its folder"
_REMEDIES = {
    sqlite3.SQLITE_BUSY: f"A process held it for {BUSY_SECONDS:.0f} s. Find it with `fuser`, end it, and try again",
    sqlite3.SQLITE_CANTOPEN: _DENIED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_IOERR: "Check the disk and its free space, and try again",
    sqlite3.SQLITE_NOTADB: "The file is not an event bus: move it away, or name another bus folder",
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_READONLY: _DENIED,
}
_SYSTEM_REMEDIES = {errno.EACCES: _DENIED, errno.EPERM: _DENIED}


class BusFile:
    """The open file of a bus: runs single statements (`reading`) or a durable transaction (`writing`).

    The file is created if it does not exist. Threads may share it; a process forked from its opener may not use it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._connection = _open(path)
        try:
            self.identity = self._find_identity()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._turn, bus_errors(self.path):
            self._connection.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Exclude other threads and convert errors to BusError; each statement reads the newest commit."""
        if os.getpid() != self._process:
            raise BusError(f"{self.path}: this process was forked from the one that opened the bus. Open it again")
        with self._turn, bus_errors(self.path):
            yield self._connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Let several statements read one consistent state of the bus."""
        with self.reading() as connection, _transaction(connection, "BEGIN"):
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the statements as one transaction; it is on disk when the block ends, rolled back if it raises."""
        with self.reading() as connection, _sole_writer(self.path), _transaction(connection, "BEGIN IMMEDIATE"):
            yield connection

    def replace(self, positions: Sequence[int], body: bytes) -> None:
        """Replace the bodies of messages, and rewrite the file without its free pages, which have old bodies."""
        with self.writing() as connection:
            connection.executemany("UPDATE message SET body = ? WHERE position = ?", [(body, at) for at in positions])
        with self.reading() as connection, _sole_writer(self.path):
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            remedy = "Run the command again; if this persists, stop the processes that use the bus"
            raise BusError(_sentence(self.path, "a process reads the bus, so that old pages stay", remedy))

    def _find_identity(self) -> str:
        # A file that was made before buses had an identity has no table for it.
        if not self.rows("SELECT 1 FROM sqlite_schema WHERE name = 'meta'"):
            with self.writing() as connection:
                if not self.rows("SELECT 1 FROM sqlite_schema WHERE name = 'meta'"):  # another process may be faster
                    _give_identity(connection)
        ((identity,),) = self.rows("SELECT value FROM meta WHERE name = 'identity'")
        return str(identity)

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return all rows of one short query."""
        with self.reading() as connection:
            return connection.execute(statement, values).fetchall()


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def bus_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and the system to BusError with the file and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind of error, the rest its detail (https://sqlite.org/rescode.html).
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and is_disk_full(path)):
            raise BusError(_sentence(path, full_disk_message(path), "")) from error
        raise BusError(_sentence(path, str(error), _REMEDIES.get(code, ""))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BusError(_sentence(path, full_disk_message(path), "")) from error
        remedy = _SYSTEM_REMEDIES.get(error.errno or 0, "Check the bus folder and try again")
        raise BusError(_sentence(path, error.strerror or str(error), remedy)) from error


def _open(path: Path) -> sqlite3.Connection:
    with bus_errors(path):
        if not path.exists():
            _make_folder(path.parent)
            _make_file(path)
        for each in files_of_database(path):
            close_to_others(each)
        # The process that created the file may not have synced the folder yet, and a publish must not be acknowledged
        # before the file's name is durable.
        _sync(path.parent)
        connection = _connect(path)
        try:
            _check_version(connection, path)
            _make_durable(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def lock_file(path: Path) -> Path:
    """Return the lock file that a writer of a bus opens before writing, and closes after its commit."""
    return path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def _sole_writer(path: Path) -> Iterator[None]:
    # SQLite's own lock lets a commit run at the same time as another connection's checkpoint, which in all versions
    # before 3.51.3 can, rarely, lose committed pages (https://sqlite.org/wal.html#walresetbug). This lock serialises
    # the two.
    with bus_errors(path):
        descriptor = open_private(lock_file(path), os.O_RDWR)
    try:
        _wait_for(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path) -> None:
    # flock has no timeout.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BusError(_sentence(path, "the bus is locked", _REMEDIES[sqlite3.SQLITE_BUSY])) from None
        time.sleep(random.uniform(0.0002, 0.002))


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _make_durable(connection: sqlite3.Connection) -> None:
    # FULL: a commit returns once the log is on disk. A checkpoint every 16 MiB is three times as fast as one every 4
    # MiB.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("PRAGMA journal_size_limit = 67108864")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if application != _APPLICATION_ID or journal != "wal":
        raise BusError(_sentence(path, "the file is not an event bus", "Move it away, or name another bus folder"))
    if version != _VERSION:
        raise BusError(
            _sentence(
                path, f"the bus has version {version}, but this program supports {_VERSION}", "Update EventBridge"
            )
        )


def _make_file(path: Path) -> None:
    # The file is created under another name and linked into place, so that processes that start at the same time all
    # find it complete.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(open_private(draft, os.O_RDWR | os.O_EXCL))  # private to the owner; -wal and -shm get its mode
        connection = _connect(draft)
        try:
            _make_durable(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.executescript(_SCHEMA)
            _give_identity(connection)
        finally:
            connection.close()
        _sync(draft)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _give_identity(connection: sqlite3.Connection) -> None:
    connection.execute(_META)
    connection.execute("INSERT INTO meta (name, value) VALUES ('identity', ?)", (str(uuid.uuid4()),))


def _make_folder(folder: Path) -> None:
    for made in make_private_folder(folder):
        _sync(made.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sentence(path: Path, problem: str, remedy: str) -> str:
    return f"{path}: {problem.rstrip('.')}." + (f" {remedy}." if remedy else "")
