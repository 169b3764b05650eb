"""Implements the embedded bus in a SQLite file, a durable log for one host, and opens embedded buses of both kinds.

Any number of processes may publish and read concurrently. Once `publish` has returned, events survive kill -9 and loss
of power; before that they may or may not be stored.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.sources.embedded.file import BusFile, FileTables, lock_file
from eventbridge.sources.embedded.table_log import TableLog
from eventbridge.sources.embedded.tables import position
from eventbridge.sources.open import SourceSetup
from eventbridge.sources.protocol import Announcements, LogSource


class EmbeddedBus(TableLog):
    """A log source in the file `<folder>/<bus>.sqlite`, which is created with its topics if it does not exist."""

    def __init__(
        self,
        folder: Path,
        bus: str,
        *,
        topics: Sequence[str] = ("events",),
        partitions: int = 4,
        clock: Callable[[], datetime],
    ) -> None:
        self._announcements: FileAnnouncements | None = None
        self.path = folder / f"{bus}.sqlite"
        super().__init__(bus, lambda: FileTables(self.path), topics=topics, partitions=partitions, clock=clock)

    def erase(self, offsets: Mapping[Partition, Sequence[int]], body: bytes) -> None:
        """Replace the bodies of messages, and write the file again, so that no byte of the old ones is left in it.

        Raises BusError if another process reads the file meanwhile for so long that it cannot be written again.
        """
        numbered = {number: offsets.get(partition, ()) for partition, number in self._numbers.items()}
        with closing(BusFile(self.path)) as file:
            file.replace([position(number, each) for number, found in numbered.items() for each in found], body)

    def announcements(self) -> Announcements | None:
        """Return a signal of new messages from any publisher on this host, or None if the system does not support
        it."""
        if self._announcements is None:
            with suppress(OSError, AttributeError):  # a system without inotify, or at its limit of instances
                self._announcements = FileAnnouncements(lock_file(self.path))
        return self._announcements

    def close(self) -> None:
        """Close the file."""
        if self._announcements is not None:
            self._announcements.close()
        self._announcements = None
        super().close()

    def free_bytes(self) -> int:
        """Return the free bytes of the file's file system that this user may use."""
        try:
            return shutil.disk_usage(self.path.parent).free
        except OSError as error:
            raise BusError(
                f"cannot read the free space of {self.path.parent}: {error.strerror}. Check the disk"
            ) from None


_IN_CLOSE_WRITE: Final = 0x8
#: The number of bytes per read; enough for the unread inotify events of one file, because equal events are merged.
_READ_BYTES: Final = 4096


class FileAnnouncements:
    """A descriptor that is readable if a writer has closed the file at `path` since the last `take_signal`.

    Raises OSError if the system has no inotify. Writers on another host are not detected.
    """

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _check_result(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _check_result(libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_CLOSE_WRITE))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._descriptor

    def take_signal(self) -> bool:
        """Return whether a signal was set, and clear it; a caller that polls the bus afterwards misses no event."""
        try:
            return bool(os.read(self._descriptor, _READ_BYTES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _check_result(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def open_embedded(opening: SourceSetup[EmbeddedFields]) -> LogSource:
    """Open the bus, and create it if it does not exist. Raises BusError on failure.

    With a ledger in PostgreSQL the bus is in that database, shared by all hosts; otherwise in the bus folder.
    """
    source, url = opening.source, opening.settings.ledger_url
    if url.startswith("postgres"):
        from eventbridge.sources.embedded.server import DatabaseBus  # psycopg is only needed here

        return DatabaseBus(url, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
    folder = Path(opening.settings.bus_folder)
    return EmbeddedBus(folder, opening.bus, topics=source.topics, partitions=source.partitions, clock=opening.clock)
