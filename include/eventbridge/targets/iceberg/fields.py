"""Defines the rule-file fields of the target type `iceberg`; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Transform
from eventbridge.rules.types import TargetType
from eventbridge.targets.table_fields import TABLE_WORDS, TableFields, read_table_fields

_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_-]{0,99}"
_TABLE: Final = re.compile(rf"(?:{_NAME}\.){{1,8}}{_NAME}", re.ASCII)


class IcebergFields(TableFields):
    """An Iceberg table, `namespace.table`, of the catalog to which a connection leads."""

    type: Literal["iceberg"] = "iceberg"
    connection: str = ""
    table: str = ""


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    table = fields.text("table", required=True)
    if table and not _TABLE.fullmatch(table):
        remedy = "Write the namespace and the table with a dot between them, such as sales.orders"
        fields.add_to("table", f"{table[:80]!r} is not the name of an Iceberg table", remedy)
    connection = fields.name("connection", required=True)
    return {"connection": connection, "table": table, **read_table_fields(fields, transform)}


ICEBERG = TargetType(
    "iceberg",
    IcebergFields,
    "eventbridge.targets.iceberg.target:open_iceberg",
    takes="spans",
    read=_read_fields,
    words=("connection", "table", *TABLE_WORDS),
)
