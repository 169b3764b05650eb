"""Merges a sample into the schema of a type, and decides which changes to report. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from eventbridge.model.event_schema import EventSchema, FieldSample, KnownField, SchemaChange, TypeSample
from eventbridge.policy.schema_sample import MOST_FIELDS

#: A field is lost if it was always present in at least so many sampled events, and in none of the last so many.
LOST_AFTER: Final = 100
#: It still counts as always present if a batch had it only in some events: the batch with which it appeared, and the
#: one with which it disappeared.
_BREAKS = 2


class Learned(NamedTuple):
    """The new schema of a type, and the changes to report."""

    schema: EventSchema
    changes: tuple[SchemaChange, ...]


def learn(known: EventSchema | None, bus: str, name: str, sample: TypeSample, at: datetime) -> Learned:
    """Return the schema of the type `name` after a batch that was planned at `at`; `known` None: the type is new."""
    if known is None:
        fields = {path: _first(found, sample.events) for path, found in sample.fields.items()}
        schema = EventSchema(bus, name, 0, sample.events, at, at, fields)
        return Learned(schema, (SchemaChange("discovered", bus, name, at),))
    fields, changes = {}, []
    for path, field in known.fields.items():
        seen = sample.fields.get(path)
        if seen is None:
            fields[path] = now = _without(field, sample.events)
            if now.lost and not field.lost:
                changes.append(SchemaChange("field_lost", bus, name, at, path, field.types))
            continue
        fields[path] = now = _with(field, seen, sample.events)
        if _is_changed(field.types, seen.types):
            changes.append(SchemaChange("field_changed", bus, name, at, path, field.types, now.types))
    for path, seen in sample.fields.items():
        if path not in fields and len(fields) < MOST_FIELDS:
            fields[path] = _first(seen, sample.events)
    schema = replace(known, sampled=known.sampled + sample.events, last_at=max(at, known.last_at), fields=fields)
    return Learned(schema, _outermost(changes))


def _first(found: FieldSample, events: int) -> KnownField:
    return KnownField(found.seen, found.null, found.types, found.example, breaks=int(found.seen < events))


def _with(field: KnownField, found: FieldSample, events: int) -> KnownField:
    types = tuple(dict.fromkeys((*field.types, *found.types)))
    breaks = field.breaks + (found.seen < events or field.missing > 0)
    return KnownField(
        field.seen + found.seen, field.null + found.null, types, field.example or found.example, breaks=breaks
    )


def _without(field: KnownField, events: int) -> KnownField:
    missing = field.missing + events
    was_there = field.breaks <= _BREAKS and field.seen >= LOST_AFTER
    lost = field.lost or (was_there and missing >= LOST_AFTER)
    return KnownField(field.seen, field.null, field.types, field.example, missing, field.breaks, lost)


def _is_changed(before: tuple[str, ...], now: tuple[str, ...]) -> bool:
    """Return whether a type is new to a field; an integer is a number, and null or an empty array does not count."""
    known = {_family(each) for each in before}
    return bool(known) and any(_family(each) not in known for each in now)


def _family(name: str) -> str:
    return name.replace("integer", "number")


def _outermost(changes: list[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Return the changes without those of fields that disappeared with their parent object."""
    gone = {each.path for each in changes if each.kind == "field_lost"}
    return tuple(
        each
        for each in changes
        if each.kind != "field_lost" or not any(each.path.startswith(f"{outer}.") for outer in gone)
    )
