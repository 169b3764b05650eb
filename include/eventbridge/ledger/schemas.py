"""Schemas in the ledger: the known fields of events of each type, written when their batch becomes buffered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import schemas as statements
from eventbridge.model.event_schema import EventSchema, decode_fields, encode_fields
from eventbridge.policy.operational_event import OperationalEvent


class LearnedSchema(NamedTuple):
    """The new schema of a type, with the `version` that was read, and its operational events."""

    schema: EventSchema
    events: tuple[OperationalEvent, ...]


class Schemas(Database):
    """The part of the ledger about schemas."""

    def schemas_of(self, bus: str, types: Collection[str]) -> tuple[dict[str, EventSchema], int]:
        """Return the schemas of some types of a bus, and how many of its types are known in all."""
        with self._reading() as connection:
            rows = connection.execute(statements.SCHEMAS_OF, {"of_bus": bus, "types": list(types)}).all()
            known = connection.execute(statements.TYPES_KNOWN, {"of_bus": bus}).scalar_one()
        return {row.type: _to_schema(row) for row in rows}, known

    def schemas(
        self, limit: int, *, bus: str | None = None, behind: tuple[str, str] | None = None
    ) -> list[EventSchema]:
        """Return a bounded number of schemas in order of bus and name; `behind`: only those after a bus and a type."""
        query = statements.schemas(limit, bus=bus, behind=behind is not None)
        values = {} if behind is None else {"behind_bus": behind[0], "behind_type": behind[1]}
        with self._reading() as connection:
            return [_to_schema(row) for row in connection.execute(query, values)]

    def schemas_named(self, type_: str) -> list[EventSchema]:
        """Return the schemas of a type on every bus that has it."""
        with self._reading() as connection:
            return [_to_schema(row) for row in connection.execute(statements.SCHEMAS_NAMED, {"of_type": type_})]

    def end_landing(self, batch_id: str, learned: Sequence[LearnedSchema]) -> bool:
        """Move a batch from `planned` to `buffered`, record the learned schemas, and queue their operational events.

        All in one transaction; returns False, and changes nothing, if the batch is in another state. A schema that
        another process changed since it was read stays as it is, and its events are not queued.
        """
        move = {"of_batch": batch_id, "expected": "planned", "to": "buffered"}
        with self._writing() as connection:
            if connection.execute(batch_statements.MOVE_BATCH, move).rowcount != 1:
                return False
            for schema, events in learned:
                if _note(connection, schema):
                    queue_events(connection, events)
            return True


def _note(connection: Connection, schema: EventSchema) -> bool:
    fields = encode_fields(schema.fields)
    if schema.version == 0:
        row = vars(schema) | {"version": 1, "fields": fields}
        return connection.execute(statements.ADD_SCHEMA, row).rowcount == 1
    change = {
        "of_bus": schema.bus,
        "of_type": schema.type,
        "read_version": schema.version,
        "now_sampled": schema.sampled,
        "now_last_at": schema.last_at,
        "now_fields": fields,
    }
    return connection.execute(statements.CHANGE_SCHEMA, change).rowcount == 1


def _to_schema(row: Row[Any]) -> EventSchema:
    return EventSchema(**dict(row._mapping) | {"fields": decode_fields(row.fields)})
