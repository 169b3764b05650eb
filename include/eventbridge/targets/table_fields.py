"""Defines the rule-file fields that target types of tables in a lake share; it imports little, because all rule readers
import it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.vocabulary import NEW_COLUMNS

#: The words for types of columns in rule files; `decimal(p,s)` is another one.
COLUMN_TYPES: Final = ("string", "long", "double", "boolean", "timestamp", "date", "binary")
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s?(\d{1,2})\)", re.ASCII)
_MAX_DIGITS: Final = 38
_NOT_IN_FOLDERS: Final = ("binary", "double")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_NAME_REMEDY: Final = "Write letters, digits and _ only, and no digit first"

#: Fields about single deliveries, which such targets do not have because a span is sent, retried and dead-lettered as
#: one.
_SINGLE_DELIVERY_FIELDS: Final = ("ordering_key", "not_before", "deliver_within")

#: The names of the shared fields in rule files.
TABLE_WORDS: Final = ("columns", "partition_by", "delivery_id", "new_columns", "maintain", "timeout", "content_mode")


class TableFields(Target):
    """A table whose columns are the members of the payloads.

    `columns` are the names and types of the columns with which a missing table is created, and `partition_by` those of
    them by whose values its files are separated. `delivery_id` is the column that gets the delivery's id, if the table
    has it. `new_columns` decides what happens to members without a column. The upkeep of the table is done once in
    `maintain_seconds`, or never.
    """

    columns: Mapping[str, str] = Field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    delivery_id: str = "delivery_id"
    new_columns: Literal["refuse", "ignore", "add"] = "refuse"
    maintain_seconds: float | None = None

    @property
    def creates(self) -> bool:
        """Whether a missing table is created."""
        return bool(self.columns) or self.new_columns == "add"


def read_table_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    """Return the values of the shared fields."""
    column = fields.text("delivery_id", "delivery_id")
    if not _NAME.fullmatch(column):
        fields.add_to("delivery_id", f"{column[:80]!r} is not the name of a column", _NAME_REMEDY)
    columns = _read_columns(fields)
    partition_by = fields.names("partition_by", ())
    for name in partition_by:
        if columns.get(name) in _NOT_IN_FOLDERS:
            what = f"{name!r} has the type {columns[name]}, whose values are no names of folders"
            fields.add_to("partition_by", what, "Name columns of other types")
        elif name not in columns:
            what = f"{name!r} is not among the columns with which the table is created"
            fields.add_to("partition_by", what, "Give it a type in columns, or remove it")
    what = "{} applies to single deliveries, but the rows of a table are written together"
    fields.refuse(_SINGLE_DELIVERY_FIELDS, what, "Remove it")
    tolerance = fields.get("errors_tolerance")
    if tolerance is not None and tolerance.value == "none":
        what = "{}: none requires ordered deliveries, but the rows of a table have no order"
        fields.refuse(["errors_tolerance"], what, "Remove it")
    mode = {} if transform is None else {"content_mode": fields.choice("content_mode", "data", ("structured", "data"))}
    return {
        "columns": columns,
        "partition_by": partition_by,
        "delivery_id": column,
        "new_columns": fields.choice("new_columns", NEW_COLUMNS[0], NEW_COLUMNS),
        "maintain_seconds": fields.duration("maintain", None, 86_400.0, 30 * 86_400.0),
        "timeout_seconds": fields.duration("timeout", 30.0, 1.0, 30.0),
        **mode,
    }


def _read_columns(fields: Fields) -> dict[str, str]:
    if fields.get("columns") is None:
        return {}
    fields.refuse_empty("columns", "Write columns: {order_id: string, amount: double}, or remove it")
    columns: dict[str, str] = {}
    spellings: set[str] = set()
    for name, node in fields.mapping("columns").items():
        kind = node.value if isinstance(node.value, str) else ""
        if not _NAME.fullmatch(name):
            fields.add(node, f"{name[:80]!r} is not the name of a column", _NAME_REMEDY)
        elif name.lower() in spellings:
            fields.add(node, f"the column {name!r} is there twice, and case does not separate them", "Remove one")
        elif kind not in COLUMN_TYPES and decimal_of(kind) is None:
            fields.add(
                node,
                f"{name!r} must have the type of a column, not {kind[:40]!r}",
                f"Write {', '.join(COLUMN_TYPES)}, or decimal(p,s) with at most {_MAX_DIGITS} digits",
            )
        else:
            columns[name] = kind
        spellings.add(name.lower())
    return columns


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a type `decimal(p,s)`, or None if it is none."""
    found = _DECIMAL.fullmatch(kind)
    if found is None or not 0 < int(found[1]) <= _MAX_DIGITS or int(found[2]) > int(found[1]):
        return None
    return int(found[1]), int(found[2])
