"""Syncs folders in which many files were created: one sync serves all requests that arrived before it began."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(eq=False)
class _Folder:
    turn: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0
    synced: int = 0
    #: Ranges of requests whose sync failed: the kernel reports that once, so each requester must be told.
    failed: list[tuple[int, int, OSError]] = field(default_factory=list)


class FolderSyncs:
    """Folders to be synced by threads of this process: a push to ten thousand new files requests ten thousand syncs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._folders: dict[Path, _Folder] = {}

    def sync(self, folder: Path) -> None:
        """Return once every current entry of the folder is on disk; raises OSError if one may not be."""
        with self._guard:
            state = self._folders.setdefault(folder, _Folder())
            state.asked += 1
            number = state.asked
        with state.turn:
            if state.synced < number:
                self._sync(folder, state)
            error = next((error for first, last, error in state.failed if first <= number <= last), None)
        if error is not None:
            raise error

    def _sync(self, folder: Path, state: _Folder) -> None:
        with self._guard:
            first, last = state.synced + 1, state.asked
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            state.failed.append((first, last, error))
        state.synced = last


FOLDER_SYNCS = FolderSyncs()
