"""Writes and reads tables in the store as Parquet files; checks the schema on write, schema and pages on read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventbridge.errors import StoreFileDamaged, StoreFileUnreadable
from eventbridge.model import row_vectors
from eventbridge.processes import check_cancelled
from eventbridge.store import schemas
from eventbridge.store.columns import column_of
from eventbridge.store.layout import FORMAT, PARQUET_KEY, require_known_format
from eventbridge.store.protocol import Store

#: The approximate size in bytes of the rows that `parts_of` holds in memory at a time; rows may differ much in size.
_PART_BYTES: Final = 4 << 20
#: Row groups with the wanted rows are read in parts if they have more bytes than this.
_WHOLE_BYTES: Final = 32 << 20


def write_table(
    store: Store,
    path: str,
    table: pa.Table,
    row_group_rows: int = 2_000,
    create: bool = False,
    schema: pa.Schema | None = None,
) -> bool:
    """Write `table` as one Parquet file, and return True; return False if `create` is set and the file already exists.

    Raises ValueError if the table does not have exactly the columns of `schema`, by default that of the path's folder
    (`schemas.of`), or has a null where the schema allows none, because such a file would mislead every later stage.
    """
    _check(table, schema if schema is not None else schemas.schema_of(path), path)
    sink = pa.BufferOutputStream()
    with _writer(sink, table.schema, **_options(table.schema)) as writer:
        writer.write_table(table, row_group_size=row_group_rows)
    if create:
        return store.create(path, sink.getvalue())
    store.put(path, sink.getvalue())
    return True


class TableWriter:
    """Writes one Parquet file table by table; keeps fewer than `row_group_rows` uncompressed rows between two writes.

    Rows are compressed in memory as they are written. A string column of a table may be a dictionary; readers of the
    file get plain strings. `close` puts the file into the store; without it nothing is stored.
    """

    def __init__(self, store: Store, path: str, row_group_rows: int, schema: pa.Schema | None = None) -> None:
        self._store = store
        self._path = path
        self._schema = schema if schema is not None else schemas.schema_of(path)
        self._row_group_rows = row_group_rows
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self.rows = 0  # written so far

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises ValueError as `write_table` does."""
        _check(table, self._schema, self._path)
        self._waiting.append(table)
        self.rows += table.num_rows
        count = sum(waiting.num_rows for waiting in self._waiting)
        self._flush(count - count % self._row_group_rows)

    def close(self, *, create: bool = False) -> bool:
        """Put the file, which must have rows, into the store; return False if `create` is set and the file exists."""
        self._flush(sum(waiting.num_rows for waiting in self._waiting))
        assert self._writer is not None, "a file of no rows is not written"
        self._writer.close()
        if create:
            return self._store.create(self._path, self._sink.getvalue())
        self._store.put(self._path, self._sink.getvalue())
        return True

    def _flush(self, count: int) -> None:
        if not count:
            return
        # Arrow writes a dictionary unchanged only if all chunks of a column have the same dictionary.
        table = self._waiting[0] if len(self._waiting) == 1 else pa.concat_tables(self._waiting).unify_dictionaries()
        if self._writer is None:
            # The Arrow schema is left out, because readers would otherwise get dictionaries.
            options = _options(self._schema) | {"store_schema": False}
            self._writer = _writer(self._sink, table.schema, **options)
        self._writer.write_table(table.slice(0, count), row_group_size=self._row_group_rows)
        self._waiting = [table.slice(count)] if count < table.num_rows else []


def read_table(store: Store, path: str, columns: Sequence[str] | None = None, *, coded: Sequence[str] = ()) -> pa.Table:
    """Return all rows of the named columns in that order, or of all columns; columns in `coded` are dictionaries."""
    with _open(store, path, coded) as file:
        return _select_columns(file.read(_column_list(columns), use_threads=False), columns)


def read_rows(
    store: Store, path: str, rows: str, columns: Sequence[str] | None = None, *, coded: Sequence[str] = ()
) -> pa.Table:
    """Return the rows of a row set, in ascending order; read only the row groups that contain them.

    The string columns in `coded` are dictionaries. If there are none, row groups that are large in memory are read in
    parts, as by `parts_of`. Raises StoreFileDamaged if the file has fewer rows than the set names.
    """
    wanted = row_vectors.decode(rows)
    with _open(store, path, coded) as file:
        metadata = file.metadata
        if len(wanted) and wanted[-1] >= metadata.num_rows:
            raise StoreFileDamaged(f"{path!r} has {metadata.num_rows} rows; row {wanted[-1]} was requested.")
        sizes = np.array([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)], dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(sizes)))
        group_of_row = np.searchsorted(starts, wanted, side="right") - 1
        groups = np.unique(group_of_row)
        if not coded and sum(_size_of(file, int(each), columns) for each in groups) > _WHOLE_BYTES:
            return pa.concat_tables([table for _, table in _parts_of(file, wanted, columns)])
        table = file.read_row_groups(groups.tolist(), columns=_column_list(columns), use_threads=False)
        first_in_table = np.zeros(len(starts), dtype=np.int64)
        first_in_table[groups] = np.concatenate(([0], np.cumsum(sizes[groups])))[: len(groups)]
        indices = wanted - starts[group_of_row] + first_in_table[group_of_row]
        if len(indices) and indices[-1] - indices[0] + 1 == len(indices):  # contiguous, as most are; not copied
            return _select_columns(table.slice(indices[0], len(indices)), columns)
        # With a NumPy array, `take` would call `pa.array`, whose first call imports pandas: half a CPU-second.
        numbers = pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices)])
        return _select_columns(table.take(numbers), columns)


def read_equal(store: Store, path: str, column: str, value: int, columns: Sequence[str]) -> pa.Table:
    """Return the rows with the number `value` in a column; read only the row groups whose statistics allow it."""
    with _open(store, path) as file:
        index = file.schema_arrow.get_field_index(column)
        groups = []
        for number in range(file.metadata.num_row_groups):
            least_and_most = file.metadata.row_group(number).column(index).statistics
            if least_and_most is None or least_and_most.min <= value <= least_and_most.max:
                groups.append(number)
        names = list(dict.fromkeys([column, *columns]))
        table = file.read_row_groups(groups, columns=names, use_threads=False)
        # an Arrow scalar would import pandas, which costs half a CPU-second
        wanted = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(np.array([value], np.int64))])
        return table.filter(pc.is_in(table[column], value_set=wanted)).select(list(columns))


def read_span(store: Store, path: str, first: int, last: int, columns: Sequence[str]) -> pa.Table:
    """Return rows `first` (included) to `last` (excluded); read only the row groups that contain them.

    Raises StoreFileDamaged if the file has fewer rows.
    """
    with _open(store, path) as file:
        metadata = file.metadata
        if last > metadata.num_rows:
            raise StoreFileDamaged(f"{path!r} has {metadata.num_rows} rows; row {last - 1} was requested.")
        groups, start, skipped = [], 0, 0
        for number in range(metadata.num_row_groups):
            end = start + metadata.row_group(number).num_rows
            if start < last and end > first:
                groups.append(number)
            elif end <= first:
                skipped = end
            start = end
        table = file.read_row_groups(groups, columns=list(columns), use_threads=False)
        return table.slice(first - skipped, last - first).select(list(columns))


def tables_of_span(
    store: Store, path: str, first: int, last: int, columns: Sequence[str], rows_at_once: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows `first` (included) to `last` (excluded) as tables of about `rows_at_once` rows, each with its start.

    The file is opened once. Raises StoreFileDamaged if it has fewer rows.
    """
    with _open(store, path) as file:
        metadata = file.metadata
        if last > metadata.num_rows:
            raise StoreFileDamaged(f"{path!r} has {metadata.num_rows} rows; row {last - 1} was requested.")
        groups: list[int] = []
        start = end = 0
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            if end + rows <= first or end >= last:
                start = end = end + rows
                continue
            groups.append(number)
            end += rows
            if end - start >= rows_at_once or end >= last:
                table = file.read_row_groups(groups, columns=list(columns), use_threads=False)
                begin = max(first, start)
                yield begin, table.slice(begin - start, min(last, end) - begin).select(list(columns))
                groups, start = [], end


def parts_of(
    store: Store, path: str, columns: Sequence[str], rows: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
    """Yield the rows with the given numbers, or all rows, as small tables, each with the row numbers.

    Use it for columns with long values, such as bodies: only a few MB of them are in memory at a time. `rows` must be
    in ascending order; only the row groups that contain them are read. The file is opened once. Raises the exceptions
    of `check_cancelled`, also between two tables.
    """
    with _open(store, path) as file:
        yield from _parts_of(file, rows, columns)


def _parts_of(
    file: pq.ParquetFile, rows: npt.NDArray[np.int64] | None, columns: Sequence[str] | None
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
    end = 0
    for number in range(file.metadata.num_row_groups):
        start, end = end, end + file.metadata.row_group(number).num_rows
        wanted = np.arange(start, end) if rows is None else rows[slice(*np.searchsorted(rows, (start, end)))]
        if len(wanted):
            at_once = max(1, _PART_BYTES * (end - start) // max(1, _size_of(file, number, columns)))
            yield from _parts_of_group(file, number, start, wanted, columns, at_once)


def _parts_of_group(
    file: pq.ParquetFile,
    number: int,
    start: int,
    wanted: npt.NDArray[np.int64],
    columns: Sequence[str] | None,
    at_once: int,
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
    """Yield the wanted rows of a row group, whose first row is `start`, from a bounded number of its rows at once."""
    end = start
    for batch in file.iter_batches(at_once, row_groups=[number], columns=_column_list(columns), use_threads=False):
        check_cancelled()
        start, end = end, end + batch.num_rows
        here = wanted[slice(*np.searchsorted(wanted, (start, end)))]
        if len(here):
            table = _select_columns(pa.Table.from_batches([batch]), columns)
            yield here, table if len(here) == len(table) else table.take(column_of(here - start, pa.int64()))
        if wanted[-1] < end:
            return


def _size_of(file: pq.ParquetFile, number: int, columns: Sequence[str] | None) -> int:
    """Return the approximate number of bytes that the columns of a row group take in memory."""
    group = file.metadata.row_group(number)
    parts = [group.column(place) for place in range(group.num_columns)]
    return sum(
        int(each.total_uncompressed_size)
        for each in parts
        if columns is None or each.path_in_schema.partition(".")[0] in columns
    )


def count_rows(store: Store, path: str) -> int:
    """Return the number of rows without reading them."""
    with _open(store, path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _open(store: Store, path: str, coded: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    check_cancelled()
    with store.open(path) as source:
        try:
            # pre_buffer makes a few large reads; without it, each column of each group is one read from a bucket.
            with pq.ParquetFile(
                source, page_checksum_verification=True, pre_buffer=True, read_dictionary=list(coded)
            ) as file:
                require_known_format(path, _format_of(file))
                _require_columns(path, file)
                yield file
        except pa.ArrowException as error:
            raise _damaged(path, str(error)) from error
        except OSError as error:
            if error.errno is None:  # Arrow's own error, for data that it cannot parse
                raise _damaged(path, str(error)) from error
            raise StoreFileUnreadable(f"Cannot read {path!r} in the store: {error}. Check the disk.") from error


def _require_columns(path: str, file: pq.ParquetFile) -> None:
    """Raise StoreFileDamaged if a column that the folder's schema requires is missing or has a different type.

    Pages have checksums; the footer that names the columns has none.
    """
    expected = schemas.find_schema(path)
    schema = file.schema_arrow
    if expected is None or schema.equals(expected):
        return
    found = {field.name: _plain(field).type for field in schema}
    differing = [
        field.name
        for field in expected
        if field.name not in found or not (pa.types.is_nested(field.type) or found[field.name].equals(field.type))
    ]
    if differing:
        raise _damaged(path, f"these columns are missing or have another type: {', '.join(differing)}")


def _damaged(path: str, reason: str) -> StoreFileDamaged:
    return StoreFileDamaged(
        f"{path!r} is not the Parquet file that was written: {reason.strip().rstrip('.')}. "
        "Restore it from a copy of the store."
    )


def _writer(sink: pa.BufferOutputStream, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    writer = pq.ParquetWriter(sink, schema, **options)
    writer.add_key_value_metadata({PARQUET_KEY: str(FORMAT)})
    return writer


def _format_of(file: pq.ParquetFile) -> str | None:
    found = (file.metadata.metadata or {}).get(PARQUET_KEY.encode())
    return None if found is None else found.decode(errors="replace")


def _check(table: pa.Table, schema: pa.Schema, path: str) -> None:
    own = pa.schema([_plain(field) for field in table.schema])
    if not own.equals(schema):
        differing = [str(field) for field in own if field not in list(schema)]
        lacking = [str(field) for field in schema if field not in list(own)]
        raise ValueError(
            f"{path}: the table has {differing} that the schema lacks, and lacks {lacking} (or the order differs)"
        )
    nulls = [field.name for field in schema if not field.nullable and table.column(field.name).null_count]
    if nulls:
        raise ValueError(f"{path}: null in {nulls}, which must not be null")


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _options(schema: pa.Schema) -> dict[str, Any]:
    return {
        "compression": _compression(schema),
        "use_dictionary": _columns_of(schema, pa.types.is_string),
        "write_statistics": _columns_of(schema, pa.types.is_timestamp) + _columns_of(schema, pa.types.is_integer),
        "write_page_checksum": True,
    }


def _compression(schema: pa.Schema) -> str | dict[str, str]:
    """Return the compression of columns; delivery ids are not compressed, because they are hashes."""
    if any(pa.types.is_nested(field.type) for field in schema):
        return "zstd"  # settings by column would need every nested path, which is not worth it for dead letters
    hashes = pa.types.is_fixed_size_binary
    return {field.name: "none" if hashes(field.type) else "zstd" for field in schema}


def _columns_of(schema: pa.Schema, is_type: Callable[[pa.DataType], bool]) -> list[str]:
    return [field.name for field in schema if is_type(field.type)]


def _column_list(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _select_columns(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    return table if columns is None else table.select(list(columns))
