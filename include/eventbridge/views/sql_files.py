"""Reads the files of the tables of `views.sql_tables`, in the process of a query and in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import StoreFileMissing
from eventbridge.model import row_vectors
from eventbridge.store import columns, schemas
from eventbridge.store.parquet import parts_of, read_rows
from eventbridge.store.protocol import Store
from eventbridge.views.sql_tables import FILE_NUMBER, SqlTable, TableFile, type_of

#: The beginning and the end of a time range; the end is not part of it.
Period = tuple[datetime, datetime]


def read_file(
    store: Store,
    table: SqlTable,
    names: Sequence[str],
    file: TableFile,
    period: Period,
    count_lacking: Callable[[int], object] = lambda rows: None,
) -> Iterator[pa.Table]:
    """Yield the rows of a file within a time range, a few MB at a time, with the named columns of files and batches.

    Columns of delivery files are null if the delivery file is missing, as after retention has removed it;
    `count_lacking` gets the number of such rows. Raises StoreError if the file cannot be read.
    """
    own = [name for name in names if name in table.schema.names]
    routed = [name for name in names if name in table.routed]
    needed = [*own, *(table.times if file.is_cut or not own else ()), *(("file", "row") if routed else ())]
    for _, part in parts_of(store, file.path, list(dict.fromkeys(needed))):
        kept = _cut_to_period(part, table.times, file, period) if file.is_cut else part
        for each in _with_routed(store, kept, table, routed, count_lacking) if routed else [kept]:
            yield _with_batch(each, names, file)


def _cut_to_period(table: pa.Table, times: Sequence[str], file: TableFile, period: Period) -> pa.Table:
    """Return the rows of a file whose time is in the period; no row counts before its batch was planned."""
    at = columns.times_of(table[times[0]])
    for name in times[1:]:
        at = np.where(at == columns.NO_TIME, columns.times_of(table[name]), at)
    at = np.maximum(at, columns.time_code(file.batch.planned_at))
    first, end = map(columns.time_code, period)
    return table.filter(columns.flag_column((at >= first) & (at < end)))


def _with_routed(
    store: Store, settled: pa.Table, table: SqlTable, routed: Sequence[str], count_lacking: Callable[[int], object]
) -> Iterator[pa.Table]:
    """Yield settled deliveries with columns of the delivery files to which they refer."""
    codes, paths = columns.codes_of(settled["file"])
    rows = columns.numbers_of(settled["row"])
    for code, path in enumerate(paths):
        of_file = np.flatnonzero(codes == code)
        if not len(of_file):
            continue
        some = settled.take(columns.column_of(of_file, pa.int64()))
        found = _routed_rows(store, path, rows[of_file], routed)
        if found is None:
            count_lacking(len(of_file))
        for name in routed:
            if found is not None and name in found.column_names:
                some = some.append_column(name, found[name])
            else:
                some = some.append_column(name, pa.nulls(some.num_rows, type_of(table, name)))
        yield some


def _routed_rows(store: Store, path: str, rows: npt.NDArray[np.int64], routed: Sequence[str]) -> pa.Table | None:
    """Return rows of a delivery file in the given order, or of a dead letter file; None if retention removed it."""
    renamed = {"payload": "request"} if path.startswith("dead_letters/") else {}
    known = [name for name in routed if renamed.get(name, name) in schemas.schema_of(path).names]
    distinct, order = np.unique(rows, return_inverse=True)
    try:
        found = read_rows(store, path, row_vectors.encode(distinct), [renamed.get(name, name) for name in known])
    except StoreFileMissing:
        return None
    return found.take(columns.column_of(order, pa.int64())).rename_columns(known)


def _with_batch(table: pa.Table, names: Sequence[str], file: TableFile) -> pa.Table:
    """Return the named columns of a table, with those of its batch and the number of its file."""
    for name in names:
        if name == FILE_NUMBER:
            number = columns.column_of(np.full(table.num_rows, file.number), pa.int32())
            table = table.append_column(name, number)
        elif name not in table.column_names:
            table = table.append_column(name, columns.same(getattr(file.batch, name), table.num_rows))
    return table.select(list(names)) if names else table
