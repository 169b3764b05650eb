"""Statements about schemas: the known fields of the events of each type."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, bindparam, func, select, tuple_, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import event_schema

#: The schemas of some types of a bus.
SCHEMAS_OF = select(event_schema).where(
    event_schema.c.bus == bindparam("of_bus"), event_schema.c.type.in_(bindparam("types", expanding=True))
)

#: How many types of a bus are known.
TYPES_KNOWN = select(func.count()).where(event_schema.c.bus == bindparam("of_bus"))

#: Adds an unknown type.
ADD_SCHEMA = insert_or_skip(event_schema)

#: Changes the schema of a type, if it has not changed since it was read.
CHANGE_SCHEMA = (
    update(event_schema)
    .where(
        event_schema.c.bus == bindparam("of_bus"),
        event_schema.c.type == bindparam("of_type"),
        event_schema.c.version == bindparam("read_version"),
    )
    .values(
        version=bindparam("read_version") + 1,
        sampled=bindparam("now_sampled"),
        last_at=bindparam("now_last_at"),
        fields=bindparam("now_fields"),
    )
)


def schemas(limit: int, *, bus: str | None, behind: bool) -> Select[Any]:
    """Return the query for a bounded number of types, by bus and name; `behind`: only those after a bus and a type."""
    query = select(event_schema).order_by(event_schema.c.bus, event_schema.c.type).limit(limit)
    if bus is not None:
        query = query.where(event_schema.c.bus == bus)
    if behind:
        place = tuple_(event_schema.c.bus, event_schema.c.type)
        query = query.where(place > tuple_(bindparam("behind_bus"), bindparam("behind_type")))
    return query


#: A type on every bus that has it.
SCHEMAS_NAMED = select(event_schema).where(event_schema.c.type == bindparam("of_type")).order_by(event_schema.c.bus)
