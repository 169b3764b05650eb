"""Returns the event types of each bus, and the sampled fields of one type, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.errors import NotFoundError, UserError
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.model.event_schema import EventSchema, FieldChange, KnownField
from eventbridge.policy.field_use import users_of_fields
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of
from eventbridge.similar_names import suggest

_AT_ONCE = 500
#: The maximum number of a bus's rules whose use of fields is determined.
MAX_RULES = 200


@dataclass(frozen=True)
class SchemaLine:
    """An event type of a bus: how many events were sampled, how many fields it has, and how many of them are lost.

    `changed_at` is the time of the newest change of a field; None if none is recorded.
    """

    bus: str
    type: str
    sampled: int
    fields: int
    lost: int
    first_at: datetime
    last_at: datetime
    changed_at: datetime | None


@dataclass(frozen=True)
class SchemaPage:
    """A page of types, by bus and name; `cursor` leads to the next page, and is None on the last page."""

    schemas: tuple[SchemaLine, ...]
    cursor: str | None


@dataclass(frozen=True)
class SchemaField:
    """A field of a type: how often it was seen, the share of events in which it is missing or null, an example as JSON.

    `example` is None if no example is kept or shown. `missing` counts the consecutive newest events without it.
    `first_at` and `last_at` are when the first and the last batch with it were planned; None if that was not recorded.
    `changes` has its newest changes, the oldest first.
    """

    path: str
    types: tuple[str, ...]
    seen: int
    null_rate: float
    missing: int
    lost: bool
    example: str | None
    first_at: datetime | None
    last_at: datetime | None
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True)
class Schema:
    """The sampled fields of an event type on a bus, by path."""

    bus: str
    type: str
    sampled: int
    first_at: datetime
    last_at: datetime
    fields: tuple[SchemaField, ...]


def schema_page(runtime: Runtime, limit: int, after: str | None = None, bus: str | None = None) -> SchemaPage:
    """Return at most `limit` types after a cursor.

    Raises UserError for an invalid cursor, and for a caller who is limited to owners unless they name a bus that they
    may see.
    """
    behind = None
    if after:
        behind = read_name_cursor(after, 2)
    if not visibility_of(runtime).bus(bus):
        raise UserError("Name a bus: you see the types of your own buses and of buses that your rules use")
    found = runtime.ledger.schemas.find(limit + 1, bus=bus, behind=None if behind is None else (behind[0], behind[1]))
    cursor = write_name_cursor(found[limit - 1].bus, found[limit - 1].type) if len(found) > limit else None
    return SchemaPage(tuple(map(_line, found[:limit])), cursor)


def all_schemas(runtime: Runtime, bus: str | None = None) -> list[SchemaLine]:
    """Return every known type, by bus and name."""
    found: list[EventSchema] = []
    while not found or len(found) % _AT_ONCE == 0:
        behind = (found[-1].bus, found[-1].type) if found else None
        more = runtime.ledger.schemas.find(_AT_ONCE, bus=bus, behind=behind)
        if not more:
            break
        found += more
    return [_line(each) for each in found]


def schemas_named(runtime: Runtime, type_: str, bus: str | None = None, *, examples: bool = True) -> list[Schema]:
    """Return the schema of a type on each bus that has it. Raises NotFoundError if no bus has it.

    If `examples`, the fields have example values.
    """
    visibility = visibility_of(runtime)
    found = [
        each
        for each in runtime.ledger.schemas.list_named(type_)
        if bus in (None, each.bus) and visibility.bus(each.bus)
    ]
    if not found:
        where = f"on the bus {bus!r}" if bus is not None else "on any bus"
        types = {each.type for each in all_schemas(runtime, bus) if visibility.bus(each.bus)}
        raise NotFoundError(f"no event of the type {type_!r} was sampled {where}. {suggest('Types', type_, types)}")
    return [_schema(each, examples) for each in found]


def newest_changes(schema: Schema, limit: int) -> list[tuple[str, FieldChange]]:
    """Return the newest changes of a schema's fields, each with the path of the field, the newest first."""
    found = [(field.path, each) for field in schema.fields for each in field.changes]
    return sorted(found, key=lambda each: each[1].at, reverse=True)[:limit]


def field_users(runtime: Runtime, schema: Schema) -> tuple[dict[str, list[str]], bool]:
    """Return, by field, those of the bus's first MAX_RULES rules that use it, and whether the bus has more rules."""
    rules = runtime.rule_set()
    of_bus = [name for name, rule in rules.rules.items() if rule.bus == schema.bus]
    shown = [rules.rules[name] for name in sorted(of_bus)[:MAX_RULES]]
    users = users_of_fields(shown, schema.type, [field.path for field in schema.fields])
    return users, len(of_bus) > MAX_RULES


def _line(schema: EventSchema) -> SchemaLine:
    lost = sum(field.lost for field in schema.fields.values())
    changed_at = max((each.at for field in schema.fields.values() for each in field.changes), default=None)
    return SchemaLine(
        schema.bus, schema.type, schema.sampled, len(schema.fields), lost, schema.first_at, schema.last_at, changed_at
    )


def _schema(learned: EventSchema, examples: bool) -> Schema:
    fields = (_field(path, field, learned.sampled, examples) for path, field in sorted(learned.fields.items()))
    return Schema(learned.bus, learned.type, learned.sampled, learned.first_at, learned.last_at, tuple(fields))


def _field(path: str, field: KnownField, sampled: int, examples: bool) -> SchemaField:
    rate = round(1 - (field.seen - field.null) / max(1, sampled), 4)
    example = field.example or None if examples else None
    return SchemaField(
        path,
        field.types,
        field.seen,
        rate,
        field.missing,
        field.lost,
        example,
        field.first_at,
        field.last_at,
        field.changes,
    )
