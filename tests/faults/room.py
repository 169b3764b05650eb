"""Where worlds lie: in memory, where there is no waiting for a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Memory that looks like a disk, and is as safe from a process that dies. Linux has it.
_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 1 << 30


@contextmanager
def room() -> Iterator[Path]:
    """Make a folder for worlds, removed after the block; on the disk where there is little of such memory."""
    there = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="eventbridge-worlds-", dir=_MEMORY if there else None) as folder:
        yield Path(folder)
