"""Creates files and folders that only their owner may read, whatever the process's umask is; detects full disks.

A folder that an operator has created with the set-group-ID bit and group write (mode 2770) is shared: its group may
also read and write everything that is created in it, so that several users of one host can work on one installation.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SHARED = stat.S_ISGID | stat.S_IWGRP

#: The free space, in bytes, below which a disk counts as full for SQLite.
_LEAST_BYTES = 1 << 20


def is_shared(folder: Path) -> bool:
    """Return whether a folder is shared: set-group-ID, and writable by its group."""
    return folder.stat().st_mode & _SHARED == _SHARED


def make_private_folder(folder: Path) -> list[Path]:
    """Create a folder and its missing parents, with mode 0700, or 2770 in a shared folder.

    Return the created folders, outermost first. Raises OSError.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    missing.reverse()
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
        if is_shared(each.parent):
            each.chmod(0o2770)  # mkdir masks the mode with the umask
    if not missing:
        folder.mkdir(mode=0o700, exist_ok=True)  # raises if something other than a folder exists
    return missing


def open_private(path: Path | str, flags: int) -> int:
    """Return the descriptor of a file opened with `flags`, plus O_CREAT and O_CLOEXEC.

    A new file has mode 0600, or 0660 in a shared folder.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    share_like_folder(descriptor, Path(path).parent)
    return descriptor


def share_like_folder(descriptor: int, folder: Path) -> None:
    """Make a new file accessible to the group of its folder, if the folder is shared."""
    if is_shared(folder):
        with suppress(PermissionError):  # another user created it, with that mode
            os.fchmod(descriptor, 0o660)


def close_to_others(path: Path) -> None:
    """Remove others' permissions from a file or folder that an earlier version or a user created, if it exists.

    The group keeps its permissions if the folder is shared. For a user who does not own the file, nothing changes.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    folder = path if stat.S_ISDIR(mode) else path.parent
    kept = 0o770 if is_shared(folder) else 0o700
    open_to_all = mode & stat.S_ISVTX  # /tmp and similar folders stay open
    if mode & 0o077 & ~kept and not open_to_all:
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(mode) & (kept | stat.S_ISGID | stat.S_ISUID))


def files_of_database(file: Path) -> Iterator[Path]:
    """Yield the file of an SQLite database and its companion files."""
    yield from (file.with_name(f"{file.name}{suffix}") for suffix in ("", "-wal", "-shm", ".lock"))


def is_disk_full(file: Path) -> bool:
    """Return whether a file's file system has almost no free space. This may be the cause of an "I/O error".

    SQLite reports a failed sync, or missing space for the shared memory of its processes, as an I/O error.
    """
    return _free(_folder(file)) < _LEAST_BYTES


def full_disk_message(file: Path) -> str:
    """Return the error and its remedy, with the folder of the file and the free space there."""
    folder = _folder(file)
    return (
        f"the disk is full: {folder} has {_free(folder):,} bytes left. "
        "Free some space there, then run this again; nothing was lost"
    )


def _folder(file: Path) -> Path:
    return next(above for above in file.absolute().parents if above.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
