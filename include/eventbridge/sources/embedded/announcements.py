"""What tells that a bus's file was written: the system's notices of its lock file, which each writer closes at last."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_IN_CLOSE_WRITE: Final = 0x8
#: Notices of one file that nobody has read yet are one.
_READ_BYTES: Final = 4096


class FileAnnouncements:
    """Readable once a writer has closed the file at `path` since `take_signal` was called last.

    OSError: the system has none.

    Writers on another machine, or beyond the system's file system, are not noticed.
    """

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_CLOSE_WRITE))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._descriptor

    def take_signal(self) -> bool:
        """Return whether something was told, and forget it: who looks after that misses nothing."""
        try:
            return bool(os.read(self._descriptor, _READ_BYTES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Tell nothing any more."""
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
