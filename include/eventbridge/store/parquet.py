"""Tables in the store: Parquet files whose schema is checked at writing and whose pages are checked at reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eventbridge import rowset
from eventbridge.errors import StoreError, StoreFileDamaged
from eventbridge.store import schemas
from eventbridge.store.protocol import Store


def write_table(
    store: Store,
    path: str,
    table: pa.Table,
    row_group_rows: int = 2_000,
    create: bool = False,
    schema: pa.Schema | None = None,
) -> bool:
    """Write `table` as one Parquet file (zstd); False only with `create`, if there is a file already.

    Raises ValueError if the table has not exactly the columns of `schema`, by default that of the path's folder
    (`schemas.of`), or a null where the schema allows none: such a file would mislead every later stage.
    """
    _check(table, schema if schema is not None else schemas.of(path), path)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=row_group_rows,
        compression="zstd",
        use_dictionary=_columns_of(table, pa.types.is_string),
        write_statistics=_columns_of(table, pa.types.is_timestamp) + _columns_of(table, pa.types.is_integer),
        write_page_checksum=True,
    )
    if create:
        return store.create(path, sink.getvalue())
    store.put(path, sink.getvalue())
    return True


def read_table(store: Store, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows, of the named columns in that order or of all."""
    with _opened(store, path) as file:
        return _selected(file.read(_listed(columns), use_threads=False), columns)


def read_rows(store: Store, path: str, rows: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows that a row set names, in ascending order; reads only the row groups that hold them.

    Raises StoreFileDamaged if the file has fewer rows than the set speaks of.
    """
    wanted = np.fromiter(rowset.decode(rows), dtype=np.int64)
    with _opened(store, path) as file:
        metadata = file.metadata
        if len(wanted) and wanted[-1] >= metadata.num_rows:
            raise StoreFileDamaged(f"{path!r} has {metadata.num_rows} rows; row {wanted[-1]} was asked for.")
        sizes = np.array([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)], dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(sizes)))
        group_of_row = np.searchsorted(starts, wanted, side="right") - 1
        groups = np.unique(group_of_row)
        table = file.read_row_groups(groups.tolist(), columns=_listed(columns), use_threads=False)
        first_in_table = np.zeros(len(starts), dtype=np.int64)
        first_in_table[groups] = np.concatenate(([0], np.cumsum(sizes[groups])))[: len(groups)]
        return _selected(table.take(wanted - starts[group_of_row] + first_in_table[group_of_row]), columns)


def count_rows(store: Store, path: str) -> int:
    """Return the number of rows without reading them."""
    with _opened(store, path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _opened(store: Store, path: str) -> Iterator[pq.ParquetFile]:
    with store.open(path) as source:
        try:
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                yield file
        except pa.ArrowException as error:
            raise StoreFileDamaged(f"{path!r} is not the Parquet file that was written: {error}") from error
        except OSError as error:
            if error.errno is None:  # Arrow's own, for what it cannot make sense of
                raise StoreFileDamaged(f"{path!r} is not the Parquet file that was written: {error}") from error
            raise StoreError(f"Cannot read {path!r} in the store: {error}. Look at the disk.") from error


def _check(table: pa.Table, schema: pa.Schema, path: str) -> None:
    if not table.schema.equals(schema):
        differing = [str(field) for field in table.schema if field not in list(schema)]
        lacking = [str(field) for field in schema if field not in list(table.schema)]
        raise ValueError(
            f"{path}: the table has {differing} that the schema has not, and lacks {lacking} (or the order differs)"
        )
    nulls = [field.name for field in schema if not field.nullable and table.column(field.name).null_count]
    if nulls:
        raise ValueError(f"{path}: null in {nulls}, which may hold none")


def _columns_of(table: pa.Table, is_type: object) -> list[str]:
    return [field.name for field in table.schema if is_type(field.type)]  # type: ignore[operator]


def _listed(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _selected(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    return table if columns is None else table.select(list(columns))
