"""Defines the base class of all values in rule files, and converts them to and from their frozen form, JSON."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from eventbridge.event.json_document import Number

_FRACTION = re.compile("[.eE]")
_NOT_PLAIN = frozenset((dict, list, Number))


class FrozenModel(BaseModel):
    """An immutable value.

    `LATER` names the fields that were added after the first version. A field in `LATER` is written to JSON only if it
    differs from its default. A value that does not use the field therefore keeps its hash, and an older version can
    read that value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    LATER: ClassVar[tuple[str, ...]] = ()


def content_of(value: Any) -> Any:
    """Return a model as JSON values, without `LATER` fields at their defaults; user-written JSON is not changed."""
    # model_dump would serialise each Number inside a pattern as its fields. The keys of user-written JSON keep their
    # order, on which a constant's payload depends.
    if not isinstance(value, FrozenModel):
        return value
    fields = type(value).model_fields
    left_out = [name for name in value.LATER if getattr(value, name) == _default(type(value), name)]
    found = {name: _field(getattr(value, name)) for name in fields if name not in left_out}
    return found | (value.model_extra or {})


@cache
def _default(kind: type[FrozenModel], name: str) -> Any:
    return kind.model_fields[name].get_default(call_default_factory=True)


def _field(value: Any) -> Any:
    match value:
        case FrozenModel():
            return content_of(value)
        case datetime():
            return value.isoformat()
        case tuple():
            return list(value)
        case dict() if value and all(isinstance(item, FrozenModel) for item in value.values()):
            return {name: content_of(value[name]) for name in sorted(value)}
        case _:
            return value


def plain(value: Any) -> Any:
    """Return a JSON value with ints and floats instead of Numbers, except in JSON that a user wrote."""
    # Most values are strings, so testing the type before the recursive call halves the time to read a rule.
    kind = type(value)
    if kind is dict:
        kept = _as_written(value)
        return {
            key: item if type(item) not in _NOT_PLAIN or key in kept else plain(item) for key, item in value.items()
        }
    if kind is list:
        return [plain(item) for item in value]
    if kind is Number:
        text = value.text
        return int(text) if text.isdigit() or not _FRACTION.search(text) else float(text)
    return value


def _as_written(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that hold user-written JSON.

    Only a mapping that looks like a transform or a rule has such fields. In other mappings the same words may be names:
    a rule, for example, may be named `pattern`."""
    if type(value.get("form")) is str:
        return ("value", "steps")
    return ("pattern",) if type(value.get("bus")) is str else ()
