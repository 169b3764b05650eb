"""Stores the results of Spark SQL for a rule's events: the driver writes them, and the worker that routes the share
reads them.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import Event
from eventbridge.model import rowset
from eventbridge.rules import Rule
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store
from eventbridge.transform import Rendered, Renderer, Scope
from eventbridge.transform.fill import JSON, TEXT
from eventbridge.transform.rendered import MAXIMUM_BYTES, too_large

#: The location of an event: buffer file and row.
EventRow = tuple[str, int]

_VALUE = pa.struct(
    [
        pa.field("target", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("is_json", pa.bool_(), nullable=False),
        pa.field("failure", pa.string()),
    ]
)
_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("failure", pa.string()),
        pa.field("values", pa.list_(_VALUE), nullable=False),
    ]
)


@dataclass(frozen=True)
class Value:
    """The value of an SQL expression as JSON or plain text (None for null), or its error."""

    text: str | None
    is_json: bool = False
    failure: str | None = None


@dataclass(frozen=True)
class SqlResult:
    """Spark's result for one event: whether `where` admits the event, or the error of `where`, and the value for each
    SQL target."""

    kept: bool
    failure: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)

    def renderers(self, rule: Rule) -> dict[str, Renderer]:
        """Return a renderer for each SQL target. Each can render only this event."""
        return {
            name: _KnownRenderer(self.values[name], missing_is_error=target.transform.missing == "error")
            for name, target in rule.targets.items()
            if target.transform.form == "SQL"
        }


class _KnownRenderer:
    """Renders a value that Spark has computed."""

    def __init__(self, value: Value, *, missing_is_error: bool) -> None:
        self._value = value
        self._missing_is_error = missing_is_error

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the value. Raises TransformFailed if the expression failed, or if its value is too large, or is null
        where that is an error."""
        value = self._value
        if value.failure is not None:
            raise TransformFailed(value.failure)
        if value.text is None and self._missing_is_error:
            raise TransformFailed("the expression is null for this event")
        if value.text is None:
            return Rendered(b"null", JSON)
        payload = value.text.encode()
        if len(payload) > MAXIMUM_BYTES:
            raise too_large(len(payload))
        return Rendered(payload, JSON if value.is_json else TEXT)


def write_sql_results(store: Store, path: str, results: Mapping[EventRow, SqlResult]) -> None:
    """Write the results as one file."""
    rows = [
        {
            "file": file,
            "row": row,
            "kept": result.kept,
            "failure": result.failure,
            "values": [{"target": target, **vars(value)} for target, value in result.values.items()],
        }
        for (file, row), result in results.items()
    ]
    write_table(store, path, pa.Table.from_pylist(rows, schema=_SCHEMA), schema=_SCHEMA)


def read_sql_results(store: Store, path: str) -> dict[EventRow, SqlResult]:
    """Read what `write_sql_results` wrote."""
    return {
        (row["file"], row["row"]): SqlResult(
            row["kept"], row["failure"], {each.pop("target"): Value(**each) for each in row["values"]}
        )
        for row in read_table(store, path).to_pylist()
    }


def files_with_result(files: Iterable[tuple[str, str]], results: Mapping[EventRow, SqlResult]) -> list[tuple[str, str]]:
    """Return those rows of a share that have a result, as pairs of buffer file and row set."""
    return [(file, rowset.encode(row for row in rowset.decode(rows) if (file, row) in results)) for file, rows in files]
