"""Finds the rows that violate CHECK constraints of a Delta table; one of them fails the transaction of all rows."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from eventbridge.targets.arrow_rows import ConvertedRows

#: What the error of such a transaction says; what follows it shows rows.
VIOLATED: Final = "failed validation check"
_PREFIX: Final = "delta.constraints."
_NUMBER: Final = "eventbridge row"


def reject_violations(table: DeltaTable, rows: ConvertedRows) -> ConvertedRows:
    """Return the rows that keep all constraints; the others are rejected, each with the name of its constraint."""
    found: dict[int, str] = {}
    numbered = rows.table.append_column(_NUMBER, pa.array(range(rows.table.num_rows), pa.int64()))
    with TemporaryDirectory(prefix="eventbridge-") as folder:
        write_deltalake(folder, numbered)
        query = QueryBuilder().register("rows", DeltaTable(folder))
        for name, condition in sorted(table.metadata().configuration.items()):
            if name.startswith(_PREFIX):
                violating = query.execute(f'SELECT "{_NUMBER}" FROM rows WHERE ({condition}) IS NOT TRUE').read_all()
                why = f"the row violates the constraint {name.removeprefix(_PREFIX)!r} of the table"
                found |= dict.fromkeys(pa.table(violating)[_NUMBER].to_pylist(), why)
    payloads = [number for number in range(rows.table.num_rows + len(rows.rejected)) if number not in rows.rejected]
    rejected = rows.rejected | {payloads[number]: why for number, why in found.items()}
    kept = [number for number in range(rows.table.num_rows) if number not in found]
    return ConvertedRows(rows.table.take(pa.array(kept, pa.int64())), rejected, rows.added)
