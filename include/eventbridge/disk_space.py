"""What is told when the disk below a database's file is full; used by the embedded bus and the ledger."""

from __future__ import annotations

import shutil
from pathlib import Path

#: With less room than this a disk is full for SQLite.
_LEAST_BYTES = 1 << 20


def is_full(file: Path) -> bool:
    """Return whether next to nothing is free where a file lies: then an "I/O error" is one of a full disk.

    SQLite gives that name to what fails at a sync, or where its processes' shared memory gets no room.
    """
    return _free(_folder(file)) < _LEAST_BYTES


def full_disk(file: Path) -> str:
    """Return what went wrong and its remedy, with the folder of the file and the space that is free there."""
    folder = _folder(file)
    return (
        f"the disk is full, {folder} has {_free(folder):,} bytes left. "
        "Free some space there, then run this again; nothing was lost"
    )


def _folder(file: Path) -> Path:
    return next(above for above in file.absolute().parents if above.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
