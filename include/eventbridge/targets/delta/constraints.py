"""Finds the rows that a Delta table does not take; one of them fails the transaction of all rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from eventbridge.targets.arrow_rows import ConvertedRows

#: What the error of such a transaction says; what follows it shows rows.
VIOLATED: Final = "failed validation check"
_PREFIX: Final = "delta.constraints."
_INVARIANT: Final = b"delta.invariants"
_COMPUTED: Final = b"delta.generationExpression"
_NUMBER: Final = "eventbridge row"


def computed_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a table that deltalake computes from others."""
    return [each.name for each in schema if _COMPUTED in (each.metadata or {})]


def reject_computed(rows: ConvertedRows, columns: list[str], *, are_ignored: bool) -> ConvertedRows:
    """Return rows without the columns that deltalake computes; those that have a value there are rejected."""
    found = {}
    if not are_ignored:
        for name in columns:
            why = (
                f"the table computes the column {name!r}. Let the transform leave it out, or write new_columns: ignore"
            )
            for number, value in enumerate(rows.table[name]):
                if value.is_valid:
                    found[number] = why
    kept = rows.without(found)
    return ConvertedRows(kept.table.drop_columns(columns), kept.rejected, kept.added)


def _conditions(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """Yield the CHECK constraints and the invariants of columns, with their names."""
    for name, condition in sorted(table.metadata().configuration.items()):
        if name.startswith(_PREFIX):
            yield f"the constraint {name.removeprefix(_PREFIX)!r}", condition
    for column in pa.schema(table.schema().to_arrow()):
        if invariant := (column.metadata or {}).get(_INVARIANT):
            yield f"the invariant of the column {column.name!r}", json.loads(invariant)["expression"]["expression"]


def reject_violations(table: DeltaTable, rows: ConvertedRows) -> ConvertedRows:
    """Return the rows that keep all constraints; the others are rejected, each with the name of its constraint."""
    found: dict[int, str] = {}
    numbers = pa.array(range(rows.table.num_rows), pa.int64())
    # without the metadata of the columns, which has the invariants
    numbered = pa.table([*rows.table.columns, numbers], [*rows.table.column_names, _NUMBER])
    with TemporaryDirectory(prefix="eventbridge-") as folder:
        write_deltalake(folder, numbered)
        query = QueryBuilder().register("rows", DeltaTable(folder))
        for name, condition in _conditions(table):
            violating = query.execute(f'SELECT "{_NUMBER}" FROM rows WHERE ({condition}) IS NOT TRUE').read_all()
            found |= dict.fromkeys(pa.table(violating)[_NUMBER].to_pylist(), f"the row violates {name} of the table")
    return rows.without(found)
