"""Reads files that a compaction has moved: their bytes stand, unchanged, inside larger files.

A compaction copies files of a day into larger ones, writes a list of where each stands, and then deletes them. Readers
keep the old paths, which manifests, deliveries and the ledger name. A path without a file of its own is looked up in
the lists of its day.
"""

from __future__ import annotations

import builtins
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from eventbridge.errors import StoreFileMissing
from eventbridge.store import layout, schemas
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store, missing

#: The number of days whose lists are in memory; the list of a busy day takes about 40 MB for 200,000 files.
_DAYS: Final = 2


class CompactedFile(NamedTuple):
    """The place of a file's bytes: in another file, from `start`; `first_row` is its first row there."""

    path: str
    file: str
    start: int
    size: int
    first_row: int


def write_list(store: Store, path: str, files: Sequence[CompactedFile]) -> None:
    """Write a list of compacted files, which must be durable before the files are deleted."""
    table = pa.Table.from_pylist([each._asdict() for each in files], schema=schemas.COMPACTED_FILES)
    write_table(store, path, table, schema=schemas.COMPACTED_FILES)


def read_list(store: Store, path: str) -> list[CompactedFile]:
    """Return the compacted files that a list names. Raises StoreFileMissing, StoreFileDamaged."""
    return [CompactedFile(**row) for row in read_table(store, path).to_pylist()]


def compacted_manifests(store: Store) -> Iterator[str]:
    """Yield the paths of all manifests that were compacted."""
    for path in store.list(layout.COMPACTED_LISTS):
        if layout.area_of_list(path) == "manifests":
            yield from (each.path for each in read_list(store, path))


class CompactedStore:
    """A store that finds the files that a compaction has moved; `list` and `size` see files as they are stored.

    A file at the path itself wins over one that was moved, because a repair writes a file again under its path.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._days: OrderedDict[str, tuple[builtins.list[str], Mapping[str, CompactedFile]]] = OrderedDict()

    @property
    def uri(self) -> str:
        """Return the URI of the store."""
        return self._store.uri

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file; an existing one is replaced."""
        self._store.put(path, data)

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless it exists at this path, and return whether it was written."""
        return self._store.create(path, data)

    def get(self, path: str) -> bytes:
        """Return the bytes of a file, wherever they stand. Raises StoreFileMissing if there is none."""
        try:
            return self._store.get(path)
        except StoreFileMissing:
            with self._moved(path) as source:
                return bytes(source.read())

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random-access reads, wherever it stands. Raises StoreFileMissing if there is none."""
        try:
            return self._store.open(path)
        except StoreFileMissing:
            return self._moved(path)

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists, also inside another one."""
        if self._store.exists(path):
            return True
        found = self.find(path)
        return found is not None and self._store.exists(found.file)

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return the paths of all files that begin with `prefix` and sort after `after`; not those that were moved."""
        return self._store.list(prefix, after)

    def size(self, prefix: str) -> int:
        """Return the total size of the files that `list` returns."""
        return self._store.size(prefix)

    def delete(self, path: str) -> None:
        """Remove a file if it exists; one that was moved stays."""
        self._store.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the files that exist; those that were moved stay."""
        self._store.delete_all(paths)

    def free_bytes(self) -> int | None:
        """Return how many bytes can still be written; None if there is no such limit."""
        return self._store.free_bytes()

    def stored_paths(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of the files that have the bytes of these files: their own, or those of larger files.

        The lists of a day are read once if the paths of a day follow each other.
        """
        stored: set[str] = set()
        for day, of_day in groupby(paths, layout.day_in_path):
            known, files = self._cached_day(day)
            moved = {} if day is None else self._read_lists(day, known, files)
            stored.update(moved[path].file if path in moved else path for path in of_day)
        return stored

    def find(self, path: str) -> CompactedFile | None:
        """Return where a file stands that was moved, or None if the lists of its day do not name it."""
        day = layout.day_in_path(path)
        if day is None:
            return None
        known, files = self._cached_day(day)
        return files[path] if path in files else self._read_lists(day, known, files).get(path)

    def _cached_day(self, day: str | None) -> tuple[Sequence[str], Mapping[str, CompactedFile]]:
        """Return the lists of a day that are in memory, and the files that they name, by path."""
        with self._lock:
            return self._days.get(day or "", ([], {}))

    def _moved(self, path: str) -> pa.NativeFile:
        found = self.find(path)
        if found is None:
            raise missing(path, self.uri)
        try:
            source = self._store.open(found.file)
        except StoreFileMissing:
            raise missing(path, self.uri) from None
        return pa.PythonFile(_Part(source, found.start, found.size), mode="r")

    def _read_lists(
        self, day: str, known: Sequence[str], files: Mapping[str, CompactedFile]
    ) -> Mapping[str, CompactedFile]:
        """Return the compacted files of a day by path, also those of lists that are not yet known."""
        lists = self._store.list(layout.compacted_lists(day))
        if lists != known:
            files = {each.path: each for path in lists for each in read_list(self._store, path)}
        with self._lock:
            self._days[day] = lists, files
            self._days.move_to_end(day)
            while len(self._days) > _DAYS:
                self._days.popitem(last=False)
        return files


class _Part(io.RawIOBase):
    """A range of bytes of a file, as a file of its own."""

    def __init__(self, source: pa.NativeFile, start: int, size: int) -> None:
        self._source = source
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("the position is before the beginning of the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        self._source.seek(self._start + self._at)
        data = bytes(self._source.read(count)) if count else b""
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()
