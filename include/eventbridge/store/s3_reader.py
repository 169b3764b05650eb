"""Reading and writing by pyarrow's S3 file system, tried again where the server or the network fails for a moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from eventbridge.s3.errors import is_passing

T = TypeVar("T")

_LONGEST_WAIT_SECONDS = 16.0


def wait_before(attempt: int) -> None:
    """Sleep before the attempt after the n-th (from 0): by chance up to 1, 2, 4, 8, 16 s, so that not all come back."""
    time.sleep(random.uniform(0, min(2.0**attempt, _LONGEST_WAIT_SECONDS)))


def again(call: Callable[[], T], attempts: int) -> T:
    """Return what `call` returns, calling it again after an error of S3 that passes.

    pyarrow's own retries are not used: it makes none if the text of an error is longer than the bytes asked for.
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
    """An open file, as `pyarrow.PythonFile` wants it; reads are ranges, tried again, and fail as StoreError."""

    def __init__(self, file: Any, errors: Callable[[], AbstractContextManager[Any]], attempts: int) -> None:
        self._file = file
        self._errors = errors
        self._attempts = attempts
        self._position = 0

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def writable(self) -> bool:
        """Say that it cannot be written."""
        return False

    def seekable(self) -> bool:
        """Say that it can be read from any place."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set where the next read begins: from the beginning (0), from here (1), from the end (2)."""
        self._position = offset + (0, self._position, self._file.size())[whence]
        return self._position

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, all that are left by default."""
        left = max(self._file.size() - self._position, 0)
        wanted = left if count is None or count < 0 else min(count, left)
        if not wanted:
            return b""
        with self._errors():
            data = bytes(again(lambda: self._file.read_at(wanted, self._position), self._attempts))
        self._position += len(data)
        return data
