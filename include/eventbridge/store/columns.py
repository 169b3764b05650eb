"""Converts columns of tables from the store to NumPy vectors and back, without a Python object per row.

Buffers are shared where possible. Neither `pa.array` nor `to_numpy` is called, because the first call of either imports
pandas, which takes half a CPU-second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: The code of a row without a value.
NO_CODE = -1

#: The time code of a row without a value.
NO_TIME = np.iinfo(np.int64).min

#: The type of string columns in memory: codes, and the strings that they stand for.
CODED = pa.dictionary(pa.int32(), pa.string())
_NUMPY_TYPES = {
    pa.int8().id: np.int8,
    pa.int32().id: np.int32,
    pa.int64().id: np.int64,
    pa.float64().id: np.float64,
    pa.timestamp("us").id: np.int64,
}


def with_codes(schema: pa.Schema, *, but: Collection[str] = ()) -> pa.Schema:
    """Return a schema whose string columns, except those in `but`, have the type CODED; `TableWriter` accepts it."""
    return pa.schema(
        [
            field.with_type(CODED) if pa.types.is_string(field.type) and field.name not in but else field
            for field in schema
        ]
    )


def ids_of(column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """Return a column of delivery ids, none of them null, as bytes of shape (n, 16)."""
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8, 16 * len(chunk), 16 * chunk.offset).reshape(-1, 16)
        for chunk in column.chunks
        if len(chunk)
    ]
    if not parts:
        return np.zeros((0, 16), np.uint8)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def codes_of(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the codes of a string column, NO_CODE for null, and the list of strings that the codes index."""
    array = coded(column)
    return numbers_of(pa.chunked_array([array.indices]), NO_CODE), array.dictionary.to_pylist()


def coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a string column as one array of type CODED."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if not column.num_chunks:
        return texts(np.zeros(0, np.int64), [])
    return column.unify_dictionaries().combine_chunks()


def texts(codes: npt.NDArray[np.int64], values: Sequence[str | None]) -> pa.DictionaryArray:
    """Return the strings that codes stand for, null for NO_CODE and for a value that is None."""
    nothing = np.array([value is None for value in [*values, None]])[codes]
    return pa.DictionaryArray.from_arrays(
        column_of(codes, pa.int32(), nothing), _strings([each or "" for each in values])
    )


def same(value: str | None, count: int) -> pa.DictionaryArray:
    """Return a column of `count` rows that all hold the same string, or null."""
    return texts(np.full(count, NO_CODE if value is None else 0), [value or ""])


def coded_column(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Return strings with few distinct values as a column of type CODED."""
    known: dict[str | None, int] = {}
    codes = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
    return texts(codes, list(known))


def strings(values: Sequence[str | None]) -> pa.StringArray:
    """Return strings as a column."""
    missing = np.array([value is None for value in values], bool)
    return _strings([value or "" for value in values], missing)


def one_text(value: str) -> pa.StringArray:
    """Return one string as a column, for use as a lookup set; an Arrow scalar, or `strings`, would import pandas."""
    encoded = value.encode("utf-8", "surrogatepass")
    ends = pa.py_buffer(np.array([0, len(encoded)], np.int32))
    return pa.StringArray.from_buffers(1, ends, pa.py_buffer(encoded))


def numbers_of(column: pa.ChunkedArray, missing: int = 0) -> npt.NDArray[np.int64]:
    """Return a column of whole numbers, `missing` for null."""
    found: npt.NDArray[np.int64] = vector_of(column).astype(np.int64)
    if column.null_count:
        found[~valid_of(column)] = missing
    return found


def vector_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the memory of a column of numbers or times as a vector; the value of a null is undefined."""
    kind = np.dtype(_NUMPY_TYPES[column.type.id])
    parts = [
        np.frombuffer(chunk.buffers()[1], kind, len(chunk), kind.itemsize * chunk.offset)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.zeros(0, kind), *parts]) if len(parts) != 1 else parts[0]


def valid_of(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return a mask of a column's rows that are not null."""
    found = np.ones(len(column), bool)
    start = 0
    for chunk in column.chunks:
        if chunk.null_count:
            found[start : start + len(chunk)] = _flags(chunk.buffers()[0], chunk)
        start += len(chunk)
    return found


def flags_of(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return a column of booleans, none of them null, as a vector."""
    return np.concatenate(
        [np.zeros(0, bool), *(_flags(chunk.buffers()[1], chunk) for chunk in column.chunks if len(chunk))]
    )


def _flags(bits: pa.Buffer, chunk: pa.Array) -> npt.NDArray[np.bool_]:
    every = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return every[chunk.offset : chunk.offset + len(chunk)].astype(bool)


def times_of(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return a column of times as microseconds since 1970, NO_TIME for null."""
    return numbers_of(column.cast(pa.int64()), NO_TIME)


def time_code(at: datetime) -> int:
    """Return an aware time as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def time_at(code: int) -> datetime:
    """Return the time of a code that `time_code` made."""
    return _EPOCH + timedelta(microseconds=code)


def times(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of times, made from a vector of `times_of`."""
    return column_of(values, pa.int64(), values == NO_TIME).cast(pa.timestamp("us", tz="UTC"))


def column_of(values: npt.NDArray[Any], kind: pa.DataType, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a vector of numbers as a column of type `kind`, null where `missing` is true."""
    exact = np.ascontiguousarray(values, _NUMPY_TYPES[kind.id])
    return pa.Array.from_buffers(kind, len(exact), [_validity(missing), pa.py_buffer(exact)])


def flag_column(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return flags as a column."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _validity(missing: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return _bits(~missing) if missing is not None and missing.any() else None


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _strings(values: Sequence[str], missing: npt.NDArray[np.bool_] | None = None) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    content = pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), content, _validity(missing))


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries; times, including those in lists and structs, are aware and in UTC.

    `Table.to_pylist` imports pandas, which takes half a CPU-second, at the first value that is a time with a zone.
    """
    schema = pa.schema([_drop_zone(field) for field in table.schema])
    timed = [field.name for field, plain in zip(table.schema, schema, strict=True) if field.type != plain.type]
    rows: list[dict[str, Any]] = table.cast(schema).to_pylist()
    for row in rows:
        row.update((name, _to_utc(row[name])) for name in timed)
    return rows


def _drop_zone(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_timestamp(kind):
        return field.with_type(pa.timestamp(kind.unit))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_drop_zone(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_drop_zone(inner) for inner in kind]))
    return field


def _to_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_to_utc(item) for item in value]
    if isinstance(value, dict):
        return {name: _to_utc(item) for name, item in value.items()}
    return value
