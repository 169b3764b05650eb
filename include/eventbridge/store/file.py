"""Implements the store in a folder: a file is made durable under a private name, and then gets its final name."""

from __future__ import annotations

import builtins
import errno
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from eventbridge.errors import StoreError, StoreFileUnreadable
from eventbridge.fault_points import reach
from eventbridge.files import make_private_folder, open_private
from eventbridge.store.protocol import check_path, check_prefix, missing, store_gone

#: The folder of drafts; no path of the store can begin with a dot, so drafts are invisible.
INCOMING = ".incoming"
#: A draft left by a killed writer is removed after this time.
LEFTOVER_AGE = timedelta(hours=24)

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space, or move the store (EVENTBRIDGE_STORE_URI). Nothing was written.",
    errno.EDQUOT: "The disk quota is used up: free some space, or have it raised. Nothing was written.",
    errno.EACCES: "Give the user that runs EventBridge read and write access to the store's folder.",
    errno.EPERM: "The file system does not allow this; the store needs one with hard links (ext4, xfs, btrfs, apfs).",
    errno.ENOTSUP: "The file system cannot do this; the store needs one with hard links (ext4, xfs, btrfs, apfs).",
    errno.EROFS: "The disk is mounted read-only: often the sign of a damaged disk; check the kernel's log.",
    errno.EXDEV: "The whole store must be on one file system.",
    errno.EIO: "The disk reports a fault: check the kernel's log.",
    errno.EMFILE: "This process has too many files open: raise `ulimit -n`.",
    errno.ELOOP: "A symbolic link in this path points back to itself: remove it, then try again.",
    **dict.fromkeys(
        (errno.EISDIR, errno.EEXIST, errno.ENOTDIR),
        "A folder is where a file belongs, or a file where a folder belongs: remove it, then try again.",
    ),
    errno.ENAMETOOLONG: "A name is too long for the file system: give the bus or runner a shorter one.",
}

#: Errors that are not about the one file, because this process can open no other file either.
_PROCESS_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class FileStore:
    """A store in the folder `root`, which is created when the first file is written.

    The file and every folder above it are synced before a write returns. A folder that another process has just created
    may not be durable yet, so each process syncs every folder on the path once.
    """

    def __init__(self, root: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow links that may change later
        self._clock = clock
        self._durable: set[Path] = set()
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """Return `file://` and the absolute path of the folder."""
        return self.root.as_uri()

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file; an existing one is replaced."""
        with self._write_private(path, data, "store.put") as (written, final):
            written.replace(final)
            reach("store.put.named")
            _sync_folder(final.parent)
        reach("store.put.done")

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless it exists, and return whether it was written; the file is durable in either case."""
        with self._write_private(path, data, "store.create") as (written, final):
            try:
                os.link(written, final)
                won = True
            except FileExistsError:
                if final.is_dir():
                    raise
                won = False
            reach("store.create.named")
            _sync_folder(final.parent)
        reach("store.create.done")
        return won

    def get(self, path: str) -> bytes:
        """Return the bytes of a file. Raises StoreFileMissing if there is none."""
        with _reading(path, self.uri):
            reach("store.get")
            return self._locate(path).read_bytes()

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random-access reads. Raises StoreFileMissing if there is none."""
        with _reading(path, self.uri):
            reach("store.open")
            located = self._locate(path)
            mode = located.stat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError
            if not stat.S_ISREG(mode):  # to open a named pipe, for example, would block until there is a writer
                raise OSError(errno.EINVAL, "not a regular file")
            return pa.OSFile(str(located), "rb")

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists."""
        with _disk_errors("look for", path):
            reach("store.exists")
            return self._locate(path).is_file()

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return, sorted, the paths of all files that begin with `prefix` and sort after `after`."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        with _disk_errors("list", prefix):
            reach("store.list")
            found = [path for path in _walk(self.root / folder, folder, after) if path.startswith(prefix)]
        return sorted(path for path in found if path > after)

    def size(self, prefix: str) -> int:
        """Return the total bytes of all files whose paths begin with `prefix`."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        with _disk_errors("measure", prefix):
            reach("store.size")
            return sum(map(_bytes_of, _entries(self.root / folder, prefix.rpartition("/")[2])))

    def delete(self, path: str) -> None:
        """Remove a file if it exists. Folders stay, because another writer may be about to use them."""
        with _disk_errors("delete", path):
            reach("store.delete")
            final = self._locate(path)
            with suppress(FileNotFoundError):
                final.unlink()
                _sync_folder(final.parent)
        reach("store.delete.done")

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the files that exist, and folders that become empty.

        A writer that is about to use such a folder fails, and creates it again at its next try. Use this method only
        for old files.
        """
        with _disk_errors("delete", paths[0] if paths else ""):
            reach("store.delete")
            folders = {self._unlink(path) for path in paths}
            for folder in folders:
                with suppress(FileNotFoundError):
                    _sync_folder(folder)
            for folder in sorted(folders, reverse=True):
                self._remove_empty(folder)
        reach("store.delete.done")

    def free_bytes(self) -> int | None:
        """Return the free bytes, available to this user, of the file system that holds the store."""
        with _disk_errors("measure", self.uri):
            existing = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
            return shutil.disk_usage(existing).free

    def _locate(self, path: str) -> Path:
        return self.root / check_path(path)

    def _unlink(self, path: str) -> Path:
        final = self._locate(path)
        with suppress(FileNotFoundError):
            final.unlink()
        return final.parent

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:  # the folder is not empty
                return
            folder = folder.parent

    @contextmanager
    def _write_private(self, path: str, data: bytes | pa.Buffer, point: str) -> Iterator[tuple[Path, Path]]:
        """Write durable bytes under a private name; yield that name, and the final name, whose folder exists."""
        final = self._locate(path)
        with _disk_errors("write", path):
            reach(point)
            self._make_durable(self.root / INCOMING)
            self._make_durable(final.parent)
            written = self.root / INCOMING / secrets.token_hex(16)
            try:
                _write_synced(written, data)
                reach(f"{point}.written")
                yield written, final
            finally:
                written.unlink(missing_ok=True)

    def _make_durable(self, folder: Path) -> None:
        """Create `folder` and the missing folders above it, and make their names durable."""
        with self._lock:
            if folder in self._durable and folder.is_dir():
                return
            if (incoming := self.root / INCOMING) in self._durable and not incoming.exists():
                raise store_gone(self.uri)
            missing = [upper for upper in (folder, *folder.parents) if not upper.exists()]
            self._durable.difference_update(missing)
            make_private_folder(folder)
            inside = [upper for upper in (folder, *folder.parents) if upper.is_relative_to(self.root)]
            for made in dict.fromkeys((*inside, *missing)):
                if made in self._durable:
                    continue
                if made != self.root or os.access(made.parent, os.R_OK):  # folders above the store may be unreadable
                    _sync_folder(made.parent)
                self._durable.add(made)
            if folder.name == INCOMING:
                self._remove_leftovers(folder)

    def _remove_leftovers(self, folder: Path) -> None:
        oldest = (self._clock() - LEFTOVER_AGE).timestamp()
        for leftover in folder.iterdir():
            with suppress(FileNotFoundError):
                if leftover.stat().st_mtime < oldest:
                    leftover.unlink()


def _write_synced(path: Path, data: bytes | pa.Buffer) -> None:
    descriptor = open_private(path, os.O_EXCL | os.O_WRONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: Path, path: str, after: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return  # not created yet, or removed since
    for entry in entries:
        if entry.name.startswith("."):
            continue
        name = f"{path}/{entry.name}" if path else entry.name
        if entry.is_dir():
            if f"{name}/" >= after[: len(name) + 1]:  # otherwise every path in it sorts before `after`
                yield from _walk(Path(entry.path), name, after)
        else:
            yield name


def _entries(folder: Path, beginning: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files in a folder and its subfolders whose path relative to the folder starts with `beginning`."""
    try:
        with os.scandir(folder) as found:
            entries = [each for each in found if each.name.startswith(beginning) and not each.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return  # not created yet, or removed since
    for entry in entries:
        if entry.is_dir():
            yield from _entries(Path(entry.path), "")
        else:
            yield entry


def _bytes_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # removed since
        return 0


@contextmanager
def _reading(path: str, uri: str) -> Iterator[None]:
    with _disk_errors("read", path, StoreFileUnreadable):
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise missing(path, uri) from error


@contextmanager
def _disk_errors(verb: str, path: str, failed: type[StoreError] = StoreError) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Check the disk, then run this again.")
        kind = StoreError if error.errno in _PROCESS_ERRORS else failed
        raise kind(f"Cannot {verb} {path!r} in the store: {error.strerror or error}. {remedy}") from error
