"""What the embedded bus says when something is wrong: with its name, its file, the disk, or another writer."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from pathlib import Path

import pytest
from unit.buses import PARTITION, at_start

from eventbridge.errors import BusError, OffsetGapError, UserError
from eventbridge.sources.embedded import file as bus_file
from eventbridge.sources.embedded.bus import EmbeddedBus


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a b", "ä"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    """A bus is a file of its folder, and nothing else."""
    with pytest.raises(UserError, match="cannot name a bus"):
        EmbeddedBus(tmp_path, name, clock=at_start)


def test_a_bus_has_topics_and_partitions(tmp_path: Path) -> None:
    """None of either is refused before a file is made."""
    with pytest.raises(UserError, match="at least one"):
        EmbeddedBus(tmp_path, "shop", topics=[], clock=at_start)
    with pytest.raises(UserError, match="at least one"):
        EmbeddedBus(tmp_path, "shop", partitions=0, clock=at_start)

    assert list(tmp_path.iterdir()) == []


def test_a_locked_bus_says_so(bus: EmbeddedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits for another one's lock gives up after its time, with a remedy; reading continues."""
    monkeypatch.setattr(bus_file, "BUSY_SECONDS", 0.05)
    with Path(f"{bus.path}.lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BusError, match=r"shop\.sqlite: the bus is locked.*fuser"):
            bus.publish([(b"x", None)])

        assert bus.end(PARTITION) == 0
    assert bus.publish([(b"x", None)]) == [(PARTITION, 0)]


def test_a_writer_outside_the_product_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that some other program holds open in the file is waited for, then reported."""
    monkeypatch.setattr(bus_file, "BUSY_SECONDS", 0.05)
    with EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus:
        other = sqlite3.connect(bus.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusError, match=r"database is locked.*fuser"):
            bus.publish([(b"x", None)])
        other.close()

        assert bus.publish([(b"x", None)]) == [(PARTITION, 0)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Any other file under the bus's name is left as it is."""
    (tmp_path / "shop.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(BusError, match=r"not a database.*move it away"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)

    assert (tmp_path / "shop.sqlite").read_bytes() == b"something else" * 100


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_that_is_no_bus_is_refused(tmp_path: Path, journal: str) -> None:
    """Some other SQLite database is left as it is."""
    with sqlite3.connect(tmp_path / "shop.sqlite") as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = (tmp_path / "shop.sqlite").read_bytes()
    with pytest.raises(BusError, match="is not an event bus"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)

    assert (tmp_path / "shop.sqlite").read_bytes() == before


def test_a_bus_of_another_version_is_refused(tmp_path: Path) -> None:
    """A bus that a later program has made is not touched."""
    EmbeddedBus(tmp_path, "shop", clock=at_start).close()
    with sqlite3.connect(tmp_path / "shop.sqlite") as other:
        other.execute("PRAGMA user_version = 7")
    other.close()
    with pytest.raises(BusError, match=r"version 7.*Update"):
        EmbeddedBus(tmp_path, "shop", clock=at_start)


def test_a_damaged_bus_says_so(tmp_path: Path) -> None:
    """Pages overwritten on disk are an error with a remedy, never a gap."""
    with EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus:
        bus.publish([(os.urandom(1000), None)] * 100)
    with bus.path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(os.urandom(4096 * 10))
    with (
        pytest.raises(BusError, match=r"malformed.*backup"),
        EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus,
    ):
        list(bus.read(PARTITION, 0, 100))


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """SQLite's own "disk is full" gets the file, what is free in its folder, and a remedy."""
    path = tmp_path / "full.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA max_page_count = 3")
    with (
        pytest.raises(
            BusError, match=rf"full\.sqlite: the disk is full: {tmp_path} has [\d,]+ bytes left\. Free some space there"
        ),
        bus_file.bus_errors(path),
    ):
        connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    connection.close()


@pytest.mark.parametrize(
    ("folder", "reported"), [("/proc", "the disk is full: /proc has 0 bytes left"), ("/", "disk I/O error. Check")]
)
def test_an_io_error_of_a_full_disk_is_reported_as_one(folder: str, reported: str) -> None:
    """SQLite calls a full disk an I/O error too; where there is room it is a fault of the disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    with pytest.raises(BusError, match=reported), bus_file.bus_errors(Path(folder) / "shop.sqlite"):
        raise error


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some"), (errno.EACCES, "Give the user"), (errno.EIO, "Check the")]
)
def test_an_os_error_is_a_bus_error(tmp_path: Path, number: int, remedy: str) -> None:
    """An OSError gets the file and a remedy, and stays the cause."""
    with pytest.raises(BusError, match=remedy) as caught, bus_file.bus_errors(tmp_path / "x.sqlite"):
        raise OSError(number, os.strerror(number))

    assert (os.strerror(number) in str(caught.value)) == (number != errno.ENOSPC)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_folder_that_is_a_file_says_so(tmp_path: Path) -> None:
    """The bus folder cannot be made where a file lies."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(BusError, match="taken"):
        EmbeddedBus(tmp_path / "taken", "shop", clock=at_start)


def test_a_closed_bus_says_so(bus: EmbeddedBus) -> None:
    """Using a bus after close is a BusError; closing twice is harmless."""
    bus.close()
    bus.close()
    with pytest.raises(BusError, match="closed"):
        bus.ends()


def test_a_bus_put_back_empty_is_noticed(tmp_path: Path) -> None:
    """A planned range of a bus whose file was taken away is an error, not a hole in the log."""
    with EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus:
        bus.publish([(b"x", None)] * 5)
    bus.path.unlink()
    with (
        EmbeddedBus(tmp_path, "shop", partitions=1, clock=at_start) as bus,
        pytest.raises(OffsetGapError, match="replaced"),
    ):
        bus.read(PARTITION, 2, 5)
