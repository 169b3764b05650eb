"""What is known of the events of a type on a bus: their fields, learned from a sample of those that are landed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import Struct, json

SchemaChangeKind = Literal["discovered", "field_lost", "field_changed"]


class FieldSample(Struct, frozen=True, array_like=True):
    """In how many sampled events a field is there, in how many of those null, its types, and one value as JSON."""

    seen: int
    null: int
    types: tuple[str, ...]
    example: str = ""


class TypeSample(Struct, frozen=True, array_like=True):
    """Sampled events of a type: how many, and their fields by path; what Spark's workers return beside files."""

    events: int
    fields: dict[str, FieldSample]


class KnownField(Struct, frozen=True, omit_defaults=True):
    """A field of a type: counts of sampled events since it was first found, `missing` of those at the end without it.

    `breaks` counts batches that had it in some sampled events only, or again after it was missing.
    `lost`: it was told that it is not there any more.
    """

    seen: int
    null: int
    types: tuple[str, ...]
    example: str = ""
    missing: int = 0
    breaks: int = 0
    lost: bool = False


@dataclass(frozen=True)
class EventSchema:
    """The fields of a type by path, learned from `sampled` events between two batches' plans.

    `version` counts the changes of the record; 0: it is not recorded yet.
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
    """What is worth telling of a type; `path` and types are of a field, "" and () where the type itself is new."""

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
    """Read what `encode_fields` wrote; raises msgspec.DecodeError for anything else."""
    return json.decode(text, type=dict[str, KnownField])
