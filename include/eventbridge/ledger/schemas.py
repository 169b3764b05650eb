"""Stores schemas in the ledger: the known fields of each event type, recorded when a batch becomes `buffered`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from eventbridge.ledger.batches import MOVE_BATCH
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata
from eventbridge.ledger.operational_events import queue_events
from eventbridge.model.event_schema import EventSchema, decode_fields, encode_fields
from eventbridge.policy.operational_event import OperationalEvent

#: A limit above the number of schemas of any bus.
_ALL: Final = 1 << 31

#: One row per event type of a bus; `version` is compared and set, because several runners may sample one bus.
event_schema = sa.Table(
    "event_schema",
    metadata,
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("sampled", sa.BigInteger, nullable=False),
    sa.Column("first_at", UtcTime, nullable=False),
    sa.Column("last_at", UtcTime, nullable=False),
    sa.Column("fields", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("bus", "type"),
)

#: The schemas of some of a bus's event types.
SCHEMAS_OF = sa.select(event_schema).where(
    event_schema.c.bus == sa.bindparam("of_bus"), event_schema.c.type.in_(sa.bindparam("types", expanding=True))
)

#: The number of a bus's event types that have a schema.
TYPES_KNOWN = sa.select(sa.func.count()).where(event_schema.c.bus == sa.bindparam("of_bus"))

#: Changes the schema of a type, if it has not changed since it was read.
CHANGE_SCHEMA = (
    sa.update(event_schema)
    .where(
        event_schema.c.bus == sa.bindparam("of_bus"),
        event_schema.c.type == sa.bindparam("of_type"),
        event_schema.c.version == sa.bindparam("read_version"),
    )
    .values(
        version=sa.bindparam("read_version") + 1,
        sampled=sa.bindparam("now_sampled"),
        last_at=sa.bindparam("now_last_at"),
        fields=sa.bindparam("now_fields"),
    )
)


def select_schemas(limit: int, *, bus: str | None, behind: bool) -> sa.Select[Any]:
    """Return the query for at most `limit` schemas, by bus and type; if `behind`, only those after a bus and type."""
    query = sa.select(event_schema).order_by(event_schema.c.bus, event_schema.c.type).limit(limit)
    if bus is not None:
        query = query.where(event_schema.c.bus == bus)
    if behind:
        key = sa.tuple_(event_schema.c.bus, event_schema.c.type)
        query = query.where(key > sa.tuple_(sa.bindparam("behind_bus"), sa.bindparam("behind_type")))
    return query


#: The schemas of a type on every bus that has it.
SCHEMAS_NAMED = (
    sa.select(event_schema).where(event_schema.c.type == sa.bindparam("of_type")).order_by(event_schema.c.bus)
)


class LearnedSchema(NamedTuple):
    """The new schema of a type, with the `version` that was read, and its operational events."""

    schema: EventSchema
    events: tuple[OperationalEvent, ...]


class Schemas(Aggregate):
    """Schemas of event types."""

    def list_for_types(self, bus: str, types: Collection[str]) -> tuple[dict[str, EventSchema], int]:
        """Return the schemas of some of a bus's event types, and the total number of the bus's types that have a
        schema."""
        with self._reading() as connection:
            rows = connection.execute(SCHEMAS_OF, {"of_bus": bus, "types": list(types)}).all()
            known = connection.execute(TYPES_KNOWN, {"of_bus": bus}).scalar_one()
        return {row.type: _to_schema(row) for row in rows}, known

    def find(self, limit: int, *, bus: str | None = None, behind: tuple[str, str] | None = None) -> list[EventSchema]:
        """Return at most `limit` schemas in order of bus and type, only those after `behind` if it is set."""
        query = select_schemas(limit, bus=bus, behind=behind is not None)
        values = {} if behind is None else {"behind_bus": behind[0], "behind_type": behind[1]}
        return [_to_schema(row) for row in self._rows(query, values)]

    def list_named(self, type_: str) -> list[EventSchema]:
        """Return the schemas of a type on every bus that has it."""
        return [_to_schema(row) for row in self._rows(SCHEMAS_NAMED, {"of_type": type_})]

    def forget_examples(self, bus: str) -> None:
        """Remove the example values of all fields of a bus's event types; the version of each schema counts on."""
        with self._writing() as connection:
            for row in connection.execute(select_schemas(_ALL, bus=bus, behind=False)).all():
                fields = {
                    path: msgspec.structs.replace(field, example="")
                    for path, field in decode_fields(row.fields).items()
                }
                change = {
                    "of_bus": row.bus,
                    "of_type": row.type,
                    "read_version": row.version,
                    "now_sampled": row.sampled,
                    "now_last_at": row.last_at,
                    "now_fields": encode_fields(fields),
                }
                connection.execute(CHANGE_SCHEMA, change)

    def end_landing(self, batch_id: str, learned: Sequence[LearnedSchema]) -> bool:
        """Move a batch from `planned` to `buffered`, record the learned schemas, and queue their operational events.

        All of this happens in one transaction. Returns False, and changes nothing, if the batch is in another state. A
        schema that another process has changed since it was read stays as it is, and its events are not queued.
        """
        move = {"of_batch": batch_id, "expected": "planned", "to": "buffered"}
        with self._writing() as connection:
            if connection.execute(MOVE_BATCH, move).rowcount != 1:
                return False
            for schema, events in learned:
                if _record_schema(connection, schema):
                    queue_events(connection, events)
            return True


def _record_schema(connection: sa.Connection, schema: EventSchema) -> bool:
    fields = encode_fields(schema.fields)
    if schema.version == 0:
        row = vars(schema) | {"version": 1, "fields": fields}
        return connection.execute(insert_or_skip(event_schema), row).rowcount == 1
    change = {
        "of_bus": schema.bus,
        "of_type": schema.type,
        "read_version": schema.version,
        "now_sampled": schema.sampled,
        "now_last_at": schema.last_at,
        "now_fields": fields,
    }
    return connection.execute(CHANGE_SCHEMA, change).rowcount == 1


def _to_schema(row: sa.Row[Any]) -> EventSchema:
    return EventSchema(**dict(row._mapping) | {"fields": decode_fields(row.fields)})
