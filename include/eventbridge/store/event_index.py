"""Writes and reads the files of the event id index: sorted hashes of ids, each with an archive file that has the id.

An index file has a few large row groups, and its footer holds the smallest and the largest hash of each, so that a
lookup of one id reads only the footer and one row group. The index is derived data: its results are verified in the
archive, and if an entry is missing, the archive is read instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.event.ids import claimed_id, event_id_hash
from eventbridge.model import row_vectors
from eventbridge.model.storage import IndexedFile
from eventbridge.store.columns import column_of, flags_of, one_text
from eventbridge.store.layout import indexed_files
from eventbridge.store.parquet import parts_of, read_equal, read_rows, read_table, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import EVENT_INDEX, INDEXED_FILES

_GROUP_ROWS = 20_000


class Index(NamedTuple):
    """Rows of the EVENT_INDEX schema, sorted by hash, and the files to which they refer, of the INDEXED_FILES
    schema."""

    rows: pa.Table
    files: pa.Table


def claimed_ids(store: Store, path: str) -> Iterator[tuple[int, str]]:
    """Yield those rows of a buffer file that are not events, with the ids that they claim to have."""
    is_malformed = pc.is_in(read_table(store, path, ["status"])["status"], value_set=one_text("malformed"))
    for rows, table in parts_of(store, path, ["body"], np.flatnonzero(flags_of(is_malformed))):
        for row, body in zip(rows.tolist(), table["body"].to_pylist(), strict=True):
            found = claimed_id(body)
            if found is not None:
                yield row, found


def index_of(store: Store, files: Iterable[tuple[IndexedFile, bool]]) -> Index:
    """Return the index of buffer files, each with True if it has messages that are not events."""
    names: list[IndexedFile] = []
    hashes: list[npt.NDArray[np.int64]] = []
    for file, malformed in files:
        ids = set(read_table(store, file.path, ["event_id"])["event_id"].to_pylist()) - {None}
        if malformed:
            ids |= {claimed for _, claimed in claimed_ids(store, file.path)}
        hashes.append(np.array([event_id_hash(each) for each in ids], np.int64))
        names.append(file)
    numbers = np.repeat(np.arange(len(names)), [len(each) for each in hashes])
    return _sort(np.concatenate([np.empty(0, np.int64), *hashes]), numbers, names)


def merge_indexes(indexes: Sequence[Index]) -> Index:
    """Return one index with the entries of several."""
    starts = np.cumsum([0, *(each.files.num_rows for each in indexes)])
    numbers = [each.rows["file"].to_numpy() + start for each, start in zip(indexes, starts, strict=False)]
    hashes = [each.rows["hash"].to_numpy() for each in indexes]
    names = [IndexedFile(**row) for each in indexes for row in each.files.to_pylist()]
    return _sort(np.concatenate(hashes), np.concatenate(numbers), names)


def write_index(store: Store, path: str, index: Index) -> None:
    """Write an index, its list of files first, so that a process that finds the rows also finds the files."""
    write_table(store, indexed_files(path), index.files, schema=INDEXED_FILES)
    write_table(store, path, index.rows, row_group_rows=_GROUP_ROWS, schema=EVENT_INDEX)


def read_index(store: Store, path: str) -> Index:
    """Return an index with all its rows. Raises StoreFileMissing, StoreFileDamaged."""
    return Index(read_table(store, path, EVENT_INDEX.names), read_table(store, indexed_files(path)))


def look_up(store: Store, path: str, event_id: str) -> list[IndexedFile]:
    """Return the archive files that may have messages with an id. Raises StoreFileMissing, StoreFileDamaged."""
    numbers = np.unique(read_equal(store, path, "hash", event_id_hash(event_id), ["file"])["file"].to_numpy())
    if not len(numbers):
        return []
    found = read_rows(store, indexed_files(path), row_vectors.encode(numbers.astype(np.int64)))
    return [IndexedFile(**row) for row in found.to_pylist()]


def _sort(hashes: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], names: Sequence[IndexedFile]) -> Index:
    order = np.argsort(hashes, kind="stable")
    rows = pa.table(
        [column_of(hashes[order], pa.int64()), column_of(numbers[order].astype(np.int32), pa.int32())],
        schema=EVENT_INDEX,
    )
    return Index(rows, pa.Table.from_pylist([each._asdict() for each in names], schema=INDEXED_FILES))
