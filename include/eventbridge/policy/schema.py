"""Samples the events of a type, merges a sample into its schema, and decides which changes to report.

Spark's workers take samples, so everything is bounded: the rows of a file, the fields of a type, the depth, the
elements of an array, and the bytes of an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from eventbridge.model.event_schema import (
    EventSchema,
    FieldChange,
    FieldChangeKind,
    FieldSample,
    KnownField,
    SchemaChange,
    TypeSample,
)

#: A field is lost if at least this many sampled events had it (all events since it appeared), and as many later events
#: lack it.
LOST_AFTER: Final = 100
#: A field counts as always present if at most this many batches had it in only some of their events: the batch in which
#: it appeared, and the batch in which it disappeared.
_BREAKS = 2

#: The number of changes that are kept of a field, the newest ones.
MAX_CHANGES: Final = 3
#: The maximum number of fields of a type; the first fields found are kept.
MAX_FIELDS: Final = 200
#: The maximum length of a type's name and of a field's path; longer ones are ignored.
LONGEST_NAME: Final = 255
_DEEPEST = 16
_ELEMENTS = 10
#: Attributes that every event has, so they are never lost and are not tracked.
_IN_EVERY_EVENT = frozenset(("specversion", "type"))
#: The values that are not shown as examples: null, and the infinities to which numbers beyond a float's range are
#: converted.
_UNSHOWN = (None, math.inf, -math.inf)
_DECODER: Final = msgspec.json.Decoder()


class Learned(NamedTuple):
    """The new schema of a type, and the changes to report."""

    schema: EventSchema
    changes: tuple[SchemaChange, ...]


def learn(known: EventSchema | None, bus: str, name: str, sample: TypeSample, at: datetime) -> Learned:
    """Return the schema of the type `name` after a batch that was planned at `at`; `known` is None for a new type."""
    if known is None:
        fields = {path: _new_field(found, sample.events, at) for path, found in sample.fields.items()}
        schema = EventSchema(bus, name, 0, sample.events, at, at, fields)
        return Learned(schema, (SchemaChange("discovered", bus, name, at),))
    fields, changes = {}, []
    for path, before in known.fields.items():
        seen = sample.fields.get(path)
        if seen is None:
            fields[path] = now = _mark_missing(before, sample.events, at)
            if now.lost and not before.lost:
                changes.append(SchemaChange("field_lost", bus, name, at, path, before.types))
            continue
        fields[path] = now = _add_sample(before, seen, sample.events, at)
        if _is_changed(before.types, seen.types):
            fields[path] = _with_change(now, "changed", at)
            changes.append(SchemaChange("field_changed", bus, name, at, path, before.types, now.types))
    for path, seen in sample.fields.items():
        if path not in fields and len(fields) < MAX_FIELDS:
            fields[path] = _with_change(_new_field(seen, sample.events, at), "added", at)
    schema = replace(known, sampled=known.sampled + sample.events, last_at=max(at, known.last_at), fields=fields)
    return Learned(schema, _outermost(changes))


def _new_field(sample: FieldSample, events: int, at: datetime) -> KnownField:
    breaks = int(sample.seen < events)
    return KnownField(sample.seen, sample.null, sample.types, sample.example, breaks=breaks, first_at=at, last_at=at)


def _add_sample(field: KnownField, found: FieldSample, events: int, at: datetime) -> KnownField:
    now = msgspec.structs.replace(
        field,
        seen=field.seen + found.seen,
        null=field.null + found.null,
        types=tuple(dict.fromkeys((*field.types, *found.types))),
        example=field.example or found.example,
        missing=0,
        breaks=field.breaks + (found.seen < events or field.missing > 0),
        lost=False,
        last_at=max(at, field.last_at or at),
    )
    return _with_change(now, "back", at) if field.lost else now


def _mark_missing(field: KnownField, events: int, at: datetime) -> KnownField:
    missing = field.missing + events
    was_there = field.breaks <= _BREAKS and field.seen >= LOST_AFTER
    lost = field.lost or (was_there and missing >= LOST_AFTER)
    now = msgspec.structs.replace(field, missing=missing, lost=lost)
    return _with_change(now, "lost", at) if lost and not field.lost else now


def _with_change(field: KnownField, kind: FieldChangeKind, at: datetime) -> KnownField:
    changes = (*field.changes, FieldChange(at, kind, field.types))[-MAX_CHANGES:]
    return msgspec.structs.replace(field, changes=changes)


def _is_changed(before: tuple[str, ...], now: tuple[str, ...]) -> bool:
    """Return whether a type is new to a field. An integer counts as a number; null and an empty array do not count."""
    known = {_family(each) for each in before}
    return bool(known) and any(_family(each) not in known for each in now)


def _family(name: str) -> str:
    return name.replace("integer", "number")


def _outermost(changes: list[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Return the changes, without `field_lost` for a field whose parent object is lost too."""
    gone = {each.path for each in changes if each.kind == "field_lost"}
    return tuple(
        each
        for each in changes
        if each.kind != "field_lost" or not any(each.path.startswith(f"{outer}.") for outer in gone)
    )


def rows_to_sample(types: Sequence[str | None], limit: int) -> list[int]:
    """Return at most about `limit` rows: the first of each type, and others spread over the file.

    A row of type None is not an event.
    """
    if limit <= 0 or not types:
        return []
    count = len(types)
    first = dict(zip(reversed(types), range(count - 1, -1, -1), strict=True))
    rows = sorted(row for name, row in first.items() if name is not None)[:limit]
    left = limit - len(rows)
    if left:
        step = max(1, -(-count // left))
        rows += [row for row in range(0, count, step) if types[row] is not None]
    return sorted(set(rows))


def sample_bodies(bodies: Iterable[bytes], example_bytes: int) -> dict[str, TypeSample]:
    """Return the sample of events in structured JSON, by type; a body that cannot be decoded is skipped."""
    found: dict[str, _Tally] = {}
    for body in bodies:
        try:
            event = _decode(body)
        except (ValueError, RecursionError):
            continue
        name = event.get("type") if isinstance(event, dict) else None
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and _is_text(name):
            found.setdefault(name, _Tally(example_bytes)).add(event)
    return {name: tally.sample() for name, tally in found.items()}


def _decode(body: bytes) -> Any:
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # msgspec rejects lone surrogates, which JSON allows
        return json.loads(body)


def merge_samples(one: TypeSample, other: TypeSample) -> TypeSample:
    """Merge two samples of a type."""
    fields = dict(one.fields)
    for path, seen in other.fields.items():
        if (before := fields.get(path)) is not None:
            types = tuple(dict.fromkeys((*before.types, *seen.types)))
            fields[path] = FieldSample(
                before.seen + seen.seen, before.null + seen.null, types, before.example or seen.example
            )
        elif len(fields) < MAX_FIELDS:
            fields[path] = seen
    return TypeSample(one.events + other.events, fields)


def path_of(steps: Iterable[str | int]) -> str:
    """Return the path of a field: names joined by dots, quoted unless they are plain identifiers.

    Element numbers, which only transforms have, are left out, so that a field has the same path in a pattern and a
    transform.
    """
    names = [step for step in steps if isinstance(step, str)]
    return ".".join(name if _is_plain(name) else _quote(name) for name in names)


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=not _is_text(name))


def _is_text(name: str) -> bool:
    """Return whether a ledger accepts a name; it rejects a lone surrogate."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(name: str) -> bool:
    return name.replace("-", "_").replace("$", "_").isidentifier()


@dataclass
class _Tally:
    """The counts of an event type's fields."""

    example_bytes: int
    events: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    null: dict[str, int] = field(default_factory=dict)
    types: dict[str, dict[str, None]] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        self.events += 1
        found: dict[str, list[str]] = {}
        for name, value in event.items():
            if name not in _IN_EVERY_EVENT:
                self._walk(value, path_of((name,)), "", found, 1)
        for path, types in found.items():
            if path not in self.seen and len(self.seen) >= MAX_FIELDS:
                continue
            self.seen[path] = self.seen.get(path, 0) + 1
            if types == ["null"]:
                self.null[path] = self.null.get(path, 0) + 1
            self.types.setdefault(path, {}).update(dict.fromkeys(each for each in types if each != "null"))

    def _walk(self, value: Any, path: str, suffix: str, found: dict[str, list[str]], depth: int) -> None:
        if isinstance(value, list):
            found.setdefault(path, [])
            for each in value[:_ELEMENTS]:
                self._walk(each, path, "[]", found, depth + 1)
            return
        found.setdefault(path, []).append("null" if value is None else type_of(value) + suffix)
        if isinstance(value, dict):
            if depth < _DEEPEST:
                for name, below in value.items():
                    inner = f"{path}.{path_of((name,))}"
                    if len(inner) <= LONGEST_NAME:
                        self._walk(below, inner, "", found, depth + 1)
        elif value not in _UNSHOWN and self.example_bytes and path not in self.examples and len(found) <= MAX_FIELDS:
            self.examples[path] = _format_example(value, self.example_bytes)

    def sample(self) -> TypeSample:
        fields = {
            path: FieldSample(seen, self.null.get(path, 0), tuple(self.types[path]), self.examples.get(path, ""))
            for path, seen in self.seen.items()
        }
        return TypeSample(self.events, fields)


def type_of(value: Any) -> str:
    """Return the JSON type of a value that is neither null nor an array; numbers are `integer` or `number`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return {float: "number", str: "string", dict: "object"}[type(value)]


def _format_example(value: object, most: int) -> str:
    text = json.dumps(value if not isinstance(value, str) else value[:most], ensure_ascii=False)
    kept = text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    return kept.replace("\x00", "\ufffd")
