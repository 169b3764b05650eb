"""Reads and writes by pyarrow's S3 file system, retried after transient failures of the server or the network."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from eventbridge.clients.s3.errors import is_passing

T = TypeVar("T")

_LONGEST_WAIT_SECONDS = 16.0


def wait_before(attempt: int) -> None:
    """Sleep after the n-th attempt (from 0), for a random time up to 1, 2, 4, 8, 16 s, to spread the callers."""
    time.sleep(random.uniform(0, min(2.0**attempt, _LONGEST_WAIT_SECONDS)))


def again(call: Callable[[], T], attempts: int) -> T:
    """Return the result of `call`; call it again after a transient error of S3.

    pyarrow's own retries are not used: it makes none if the text of an error is longer than the bytes requested.
    """
    for attempt in range(attempts - 1):
        try:
            return call()
        except OSError as error:
            if not is_passing(error):
                raise
        wait_before(attempt)
    return call()


class S3File:
    """An open file for `pyarrow.PythonFile`; reads are ranges, are retried, and fail with StoreError."""

    def __init__(self, file: Any, errors: Callable[[], AbstractContextManager[Any]], attempts: int) -> None:
        self._file = file
        self._errors = errors
        self._attempts = attempts
        self._position = 0

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def writable(self) -> bool:
        """Return False: it cannot be written."""
        return False

    def seekable(self) -> bool:
        """Return True: it can be read from any position."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position of the next read: from the beginning (0), the current position (1), the end (2)."""
        self._position = offset + (0, self._position, self._file.size())[whence]
        return self._position

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, by default all that remain."""
        left = max(self._file.size() - self._position, 0)
        wanted = left if count is None or count < 0 else min(count, left)
        if not wanted:
            return b""
        with self._errors():
            data = bytes(again(lambda: self._file.read_at(wanted, self._position), self._attempts))
        self._position += len(data)
        return data
