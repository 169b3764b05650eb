"""The base class of all values of a rule file, and the JSON that they are frozen as."""

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

    `LATER` names the fields that were added after the first version: they are frozen only if they differ from their
    defaults, so that other values keep their hash and an older version can read them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    LATER: ClassVar[tuple[str, ...]] = ()


def content_of(value: Any) -> Any:
    """Return a model as JSON values, without `LATER` fields at their defaults; user-written JSON stays as written."""
    # Not model_dump: it would serialise the fields of Numbers inside patterns. User-written JSON keeps its order of
    # keys (a constant's payload depends on it); our fields are sorted by name.
    if not isinstance(value, FrozenModel):
        return value
    fields = type(value).model_fields
    left_out = [name for name in value.LATER if getattr(value, name) == _default(type(value), name)]
    return {name: _field(getattr(value, name)) for name in fields if name not in left_out}


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
    """Return a document with ordinary numbers, except in user-written JSON: patterns and transform values."""
    # Most values are text, for which a type look-up suffices without a call: this is half the time of reading a rule.
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
    """Return the fields of a rule or transform with user-written JSON; a rule's name may equal such a field's."""
    if type(value.get("form")) is str:
        return ("value", "steps")
    return ("pattern",) if type(value.get("bus")) is str else ()
