"""Defines the schema of an event type on a bus: its fields, learned from a sample of landed events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import Struct, json

#: How a field of a known type changed: it appeared, has another type, is in no event any more, or is there again.
FieldChangeKind = Literal["added", "changed", "lost", "back"]
SchemaChangeKind = Literal["discovered", "field_lost", "field_changed"]


class FieldSample(Struct, frozen=True, array_like=True):
    """A field's statistics: how many sampled events have it, in how many it is null, its types, and an example as
    JSON."""

    seen: int
    null: int
    types: tuple[str, ...]
    example: str = ""


class TypeSample(Struct, frozen=True, array_like=True):
    """The number of sampled events of a type, and their fields by path. Spark's workers return it with their files."""

    events: int
    fields: dict[str, FieldSample]


@dataclass(frozen=True)
class FieldChange:
    """A change of a field, found in a batch that was planned at `at`, with all types that the field had until then."""

    at: datetime
    kind: FieldChangeKind
    types: tuple[str, ...]


class KnownField(Struct, frozen=True, omit_defaults=True):
    """A field of a type, with counts of sampled events since it was first found. The last `missing` of these events
    lack it.

    `breaks` counts the batches in which only some sampled events had it, or which had it again after it was missing.
    `lost` is True once its loss has been reported. `first_at` and `last_at` are when the first and the last batch with
    it were planned, None in records of earlier versions. `changes` has its newest changes, the oldest first.
    """

    seen: int
    null: int
    types: tuple[str, ...]
    example: str = ""
    missing: int = 0
    breaks: int = 0
    lost: bool = False
    first_at: datetime | None = None
    last_at: datetime | None = None
    changes: tuple[FieldChange, ...] = ()


@dataclass(frozen=True)
class EventSchema:
    """The fields of a type by path, learned from `sampled` events of batches planned from `first_at` to `last_at`.

    `version` counts the changes of the record; it is 0 if the schema is not recorded yet.
    """

    bus: str
    type: str
    version: int
    sampled: int
    first_at: datetime
    last_at: datetime
    fields: Mapping[str, KnownField]


@dataclass(frozen=True)
class SchemaChange:
    """A reportable change of a type; `path`, `before` and `now` describe a field and are empty if the type itself is
    new."""

    kind: SchemaChangeKind
    bus: str
    type: str
    at: datetime
    path: str = ""
    before: tuple[str, ...] = ()
    now: tuple[str, ...] = ()


def encode_fields(fields: Mapping[str, KnownField]) -> str:
    """Return fields as JSON, in their order."""
    return json.encode(fields).decode()


def decode_fields(text: str) -> dict[str, KnownField]:
    """Read the JSON that `encode_fields` wrote. Raises msgspec.DecodeError if it is anything else."""
    return json.decode(text, type=dict[str, KnownField])
