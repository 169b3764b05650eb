"""The errors of an unusable ledger name the cause, and the remedy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contracts.ledger_samples import a_batch, a_file
from unit.ledger.ledger_file import url

from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.ledger.remedies import explain
from eventbridge.model.file_detail import UnroutableEvent

UNPRIVILEGED_USER = 65534


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    """The remedy is the command that makes the folder; it is not made in passing: an empty ledger is no small thing."""
    with pytest.raises(LedgerError, match=rf"mkdir -p {tmp_path}/not/there"):
        Ledger.open(url(tmp_path / "not" / "there" / "ledger.sqlite"))

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_reported_and_kept(tmp_path: Path) -> None:
    """A text file in the ledger's place is named and stays as it is."""
    file = tmp_path / "ledger.sqlite"
    file.write_text("this is not a ledger\n" * 100)

    with pytest.raises(LedgerError, match=rf"file is not a database. {file} is not a ledger"):
        Ledger.open(url(file))
    assert file.read_text() == "this is not a ledger\n" * 100


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run as a user other than root, which may write anywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(UNPRIVILEGED_USER)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """Return a folder with a ledger that every user may read and none may write to."""
    folder = Path(tempfile.mkdtemp())
    Ledger.open(url(folder / "ledger.sqlite")).close()
    for path in (*folder.iterdir(), folder):
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH | (0o111 if path.is_dir() else 0))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_reported(others_folder: Path) -> None:
    """The remedy names file and folder, for an existing ledger and for a new one."""
    with without_privileges():
        for name in ("ledger.sqlite", "new.sqlite"):
            with pytest.raises(LedgerError, match=rf"Ledger .*{name}: .*write.*ls -ld {others_folder}"):
                Ledger.open(url(others_folder / name)).batches.plan(a_batch(), [])


@pytest.mark.parametrize("holder", ["another program", "another ledger"])
def test_a_locked_ledger_is_reported_after_the_timeout(file: Path, holder: str) -> None:
    """The error of a timed-out write says how to find the lock holder; reading continues meanwhile."""
    ledger = Ledger.open(url(file), busy_timeout_seconds=0.2)
    other = Ledger.open(url(file))
    connection = sqlite3.connect(file, isolation_level=None)
    with other.database.writing() if holder == "another ledger" else transaction_of(connection):
        started = time.monotonic()
        with pytest.raises(LedgerError, match=rf"database is locked.*fuser -v {file}"):
            ledger.batches.plan(a_batch(), [])
        waited = time.monotonic() - started
        assert ledger.batches.find() == []
    connection.close()

    assert waited >= 0.2
    assert ledger.batches.plan(a_batch(), [])


@contextmanager
def transaction_of(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the lock of a database for the length of a block."""
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")


def test_a_full_disk_is_reported_and_loses_nothing(file: Path) -> None:
    """What does not fit is undone as a whole, the remedy names the folder, and once there is room it works."""
    ledger = Ledger.open(url(file))
    ledger.batches.plan(a_batch(), [])
    with ledger.database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to have no room

    with pytest.raises(
        LedgerError, match=rf"ledger.sqlite: the disk is full: {file.parent} has [\d,]+ bytes left. Free some space"
    ):
        ledger.files.record(a_file(detail=UnroutableEvent("f", 1, "x" * 100_000)), while_state="planned")
    assert ledger.files.list_for_batch("batch-1", "buffer") == []
    assert ledger.files.record(a_file(detail=UnroutableEvent("f", 1, "x" * 100_000)), while_state="planned")


def test_an_io_error_of_a_full_disk_is_reported_as_a_full_disk(file: Path) -> None:
    """SQLite's "disk I/O error" is reported as a full disk if nothing is free, and as a fault if space is left."""
    full = explain("disk I/O error", engine_of("sqlite:////proc/ledger.sqlite"))
    fault = explain("disk I/O error", engine_of(url(file)))

    assert full == (
        "Ledger sqlite:////proc/ledger.sqlite: the disk is full: /proc has 0 bytes left. "
        "Free some space there, then run this again; nothing was lost."
    )
    assert f"disk I/O error. Check the disk that contains {file.parent}" in fault


def test_a_damaged_ledger_is_reported(file: Path) -> None:
    """A ledger whose pages are overwritten is not used, and the remedy says where the history still is."""
    Ledger.open(url(file)).close()
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (file.stat().st_size - 4096))

    with pytest.raises(LedgerError, match=r"malformed.*backup"):
        Ledger.open(url(file)).batches.find()
