"""Signals writes to a bus's file, by inotify on its lock file, which each writer closes after its commit."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_IN_CLOSE_WRITE: Final = 0x8
#: Unread inotify events of one file are merged into one.
_READ_BYTES: Final = 4096


class FileAnnouncements:
    """Readable once a writer has closed the file at `path` since the last `take_signal`.

    Raises OSError if the system has no inotify.

    Writers on another machine are not noticed.
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
        """Return whether there was a signal, and clear it; a caller that polls the bus afterwards misses nothing."""
        try:
            return bool(os.read(self._descriptor, _READ_BYTES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
