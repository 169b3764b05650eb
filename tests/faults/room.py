"""Provides a folder for worlds in memory, so that they do not wait for a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Linux's file system in memory, whose files survive the death of a process.
_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 1 << 30


@contextmanager
def room() -> Iterator[Path]:
    """Make a folder for worlds and remove it after the block; it is on the disk if memory is short."""
    there = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="eventbridge-worlds-", dir=_MEMORY if there else None) as folder:
        yield Path(folder)
