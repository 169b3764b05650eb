"""The embedded bus: a durable log for one machine, one SQLite file a bus.

Any number of processes may publish and read at once.
Events survive kill -9 and loss of power once `publish` has returned; before that they may or may not be stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from eventbridge.errors import BusError
from eventbridge.sources.embedded.announcements import FileAnnouncements
from eventbridge.sources.embedded.file import lock_file
from eventbridge.sources.embedded.file_tables import FileTables
from eventbridge.sources.embedded.table_log import TableLog
from eventbridge.sources.protocol import Announcements


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

    def announcements(self) -> Announcements | None:
        """Return a signal of new messages from any publisher on this host; None: the system has none."""
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
            raise BusError(f"{self.path.parent}: {error.strerror}. Check the disk") from None
