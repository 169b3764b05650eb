"""Reads files that were compacted: their bytes are, unchanged, a part of a larger file.

A compaction lists where the bytes of each file of a day are going to be, copies them into larger files, and then
deletes the files. Readers keep the old paths, which manifests, deliveries and the ledger name. A path without a file of
its own is looked up in the lists of its day. Several lists may name a path, because a run may die, or two may overlap;
the larger file that exists has its bytes.
"""

from __future__ import annotations

import builtins
import io
import threading
from collections import OrderedDict, defaultdict
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
    """The place of a file's bytes: in the larger `file`, from `start`; `first_row` is its first row there."""

    path: str
    file: str
    start: int
    size: int
    first_row: int


def write_list(store: Store, path: str, files: Sequence[CompactedFile]) -> None:
    """Write a list of compacted files. It is written before the larger files, so that none of these is ever unknown."""
    table = pa.Table.from_pylist([each._asdict() for each in files], schema=schemas.COMPACTED_FILES)
    write_table(store, path, table, schema=schemas.COMPACTED_FILES)


def read_list(store: Store, path: str) -> list[CompactedFile]:
    """Return the compacted files that a list names. Raises StoreFileMissing, StoreFileDamaged."""
    return [CompactedFile(**row) for row in read_table(store, path).to_pylist()]


#: The places of compacted files, by old path.
_Files = Mapping[str, Sequence[CompactedFile]]


class CompactedStore:
    """A store that finds compacted files under their old paths; `list` and `size` see files as they are stored.

    A file at the path itself takes precedence, because a repair writes a file again under its path.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._days: OrderedDict[str, tuple[builtins.list[str], _Files]] = OrderedDict()

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
        """Return the bytes of a file, compacted or not. Raises StoreFileMissing if there is none."""
        try:
            return self._store.get(path)
        except StoreFileMissing:
            with self._open_compacted(path) as source:
                return bytes(source.read())

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random-access reads, compacted or not. Raises StoreFileMissing if there is none."""
        try:
            return self._store.open(path)
        except StoreFileMissing:
            return self._open_compacted(path)

    def exists(self, path: str) -> bool:
        """Return whether a file with this name exists, compacted or not."""
        return self._store.exists(path) or self.find(path) is not None

    def list(self, prefix: str, after: str = "") -> builtins.list[str]:
        """Return the paths of all files that begin with `prefix` and sort after `after`; not compacted ones."""
        return self._store.list(prefix, after)

    def size(self, prefix: str) -> int:
        """Return the total size of the files that `list` returns."""
        return self._store.size(prefix)

    def delete(self, path: str) -> None:
        """Remove a file if it exists; the bytes of a compacted one stay."""
        self._store.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove the files that exist; the bytes of compacted ones stay."""
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
            places = {} if day is None else self._read_lists(day)
            present = {file for each in places.values() for file in {place.file for place in each}}
            present = {file for file in present if self._store.exists(file)}
            for path in of_day:
                stored.add(next((each.file for each in places.get(path, ()) if each.file in present), path))
        return stored

    def find(self, path: str) -> CompactedFile | None:
        """Return the place of a compacted file, or None if the lists of its day do not name it."""
        return next((each for each in self._places(path) if self._store.exists(each.file)), None)

    def _open_compacted(self, path: str) -> pa.NativeFile:
        for place in self._places(path):
            try:
                source = self._store.open(place.file)
            except StoreFileMissing:
                continue
            return pa.PythonFile(_Part(source, place.start, place.size), mode="r")
        raise missing(path, self.uri)

    def _places(self, path: str) -> Iterator[CompactedFile]:
        """Yield the places of a file, first from the lists in memory, then from those that are new."""
        day = layout.day_in_path(path)
        if day is None:
            return
        with self._lock:
            _, files = self._days.get(day, ([], {}))
        known = files.get(path, ())
        yield from known
        yield from (each for each in self._read_lists(day).get(path, ()) if each not in known)

    def _read_lists(self, day: str) -> _Files:
        """Return the compacted files of a day; its lists are read again only if there are others than in memory."""
        lists = self._store.list(layout.compacted_lists(day))
        with self._lock:
            known, files = self._days.get(day, ([], {}))
        if lists != known:
            found: dict[str, builtins.list[CompactedFile]] = defaultdict(list)
            for each in (file for path in lists for file in read_list(self._store, path)):
                found[each.path].append(each)
            files = found
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
