"""The write lock of a ledger in a file."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventbridge.files import open_private
from eventbridge.ledger.remedies import DatabaseFailure

LOCKED = "database is locked"
FULL = "database or disk is full"
UNOPENABLE = "unable to open database file"


@contextmanager
def turn_to_write(file: Path, timeout_seconds: float) -> Iterator[None]:
    """Exclude all other writers, of this and other processes, by a lock on `<file>.lock`; raises DatabaseFailure.

    SQLite's own lock lets a commit run beside another connection's checkpoint, which in all versions before 3.51.3
    can, rarely, lose committed pages (https://sqlite.org/wal.html#walresetbug). Checkpoints run at the end of a
    commit, so this lock separates both. It also waits in finer steps than SQLite does.
    """
    try:
        descriptor = open_private(f"{file}.lock", os.O_RDWR)
    except OSError as error:
        cause = FULL if error.errno == errno.ENOSPC else f"{UNOPENABLE} ({error.strerror}: {error.filename})"
        raise DatabaseFailure(cause) from error
    try:
        _wait_for(descriptor, timeout_seconds)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds  # flock has no time limit of its own
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DatabaseFailure(LOCKED) from None
        time.sleep(random.uniform(0.0002, 0.002))
