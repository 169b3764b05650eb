"""Defines the rule-file fields of the target type `sql`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.types import BATCHED_CHUNK, ChunkSize, TargetType
from eventbridge.rules.vocabulary import NEW_COLUMNS

#: The names of schemas, tables and columns; they are quoted in statements, and PostgreSQL allows 63 bytes.
COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_TABLE: Final = re.compile(rf"(?:{COLUMN.pattern}\.)?{COLUMN.pattern}", re.ASCII)
_NAME_REMEDY: Final = "Write letters, digits and _ only, such as orders or sales.orders"


class SqlFields(Target):
    """A table, `schema.table` or `table`, whose columns are the members of the payloads.

    `delivery_id` is the column that gets the delivery's id. A row that already exists is kept. With `key`, a row that
    has the same values in the columns `key` is updated instead. `new_columns` decides what happens to members for which
    there is no column.
    """

    type: Literal["sql"] = "sql"
    connection: str = ""
    table: str = ""
    key: tuple[str, ...] = ()
    delivery_id: str = "delivery_id"
    new_columns: Literal["refuse", "ignore", "add"] = "refuse"


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    table = fields.text("table", required=True)
    if table and not _TABLE.fullmatch(table):
        fields.add_to("table", f"{table[:80]!r} is not the name of a table", _NAME_REMEDY)
    column = fields.text("delivery_id", "delivery_id")
    if not COLUMN.fullmatch(column):
        fields.add_to("delivery_id", f"{column[:80]!r} is not the name of a column", "Write letters, digits and _ only")
    key = fields.names("key", ())
    for name in key:
        if not COLUMN.fullmatch(name):
            fields.add_to("key", f"{name!r} is not the name of a column", "Write letters, digits and _ only")
    mode = {} if transform is None else {"content_mode": fields.choice("content_mode", "data", ("structured", "data"))}
    return {
        "connection": fields.name("connection", required=True),
        "table": table,
        "key": key,
        "delivery_id": column,
        "new_columns": fields.choice("new_columns", NEW_COLUMNS[0], NEW_COLUMNS),
        "timeout_seconds": fields.duration("timeout", 10.0, 1.0, 30.0),
        "max_in_flight": 1_000,
        **mode,
    }


def _chunk_size(_: SqlFields) -> ChunkSize:
    return BATCHED_CHUNK


SQL = TargetType(
    "sql",
    SqlFields,
    "eventbridge.targets.sql.target:open_sql",
    takes="blocks",
    chunk_size=_chunk_size,
    read=_read_fields,
    words=("connection", "table", "key", "delivery_id", "new_columns", "timeout", "content_mode"),
)
