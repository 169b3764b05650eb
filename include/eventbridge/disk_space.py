"""The message for a full disk below a database's file; used by the embedded bus and the ledger."""

from __future__ import annotations

import shutil
from pathlib import Path

#: A disk with less free space than this is full for SQLite.
_LEAST_BYTES = 1 << 20


def is_full(file: Path) -> bool:
    """Return whether almost no space is free at a file's place; an "I/O error" is then that of a full disk.

    SQLite reports a failed sync, or missing space for the shared memory of its processes, as an I/O error.
    """
    return _free(_folder(file)) < _LEAST_BYTES


def full_disk(file: Path) -> str:
    """Return the error and its remedy, with the folder of the file and the free space there."""
    folder = _folder(file)
    return (
        f"the disk is full, {folder} has {_free(folder):,} bytes left. "
        "Free some space there, then run this again; nothing was lost"
    )


def _folder(file: Path) -> Path:
    return next(above for above in file.absolute().parents if above.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
