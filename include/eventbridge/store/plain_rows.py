"""Rows of a table as Python values, for callers that show or compare single rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries; times, including those in lists and structs, are aware and in UTC.

    `Table.to_pylist` imports pandas at the first time value with a zone, which costs half a CPU-second.
    """
    schema = pa.schema([_without_zone(field) for field in table.schema])
    timed = [field.name for field, plain in zip(table.schema, schema, strict=True) if field.type != plain.type]
    rows: list[dict[str, Any]] = table.cast(schema).to_pylist()
    for row in rows:
        row.update((name, _in_utc(row[name])) for name in timed)
    return rows


def _without_zone(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_timestamp(kind):
        return field.with_type(pa.timestamp(kind.unit))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_without_zone(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_without_zone(inner) for inner in kind]))
    return field


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_in_utc(item) for item in value]
    if isinstance(value, dict):
        return {name: _in_utc(item) for name, item in value.items()}
    return value
