"""Parses the paths with which rules refer to parts of an event, and finds the values at these paths.

They are RFC 9535 JSONPath, limited to paths to a single value. Both `$` and `$.data` are the event's data; `$.source`
is an attribute.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

from eventbridge.errors import EventError, TransformError
from eventbridge.event.json_document import JsonValue, as_json_value
from eventbridge.event.json_text import canonical_text
from eventbridge.similar_names import similar
from eventbridge.transform.error import NAME, error_at, member


class MissingValue(enum.Enum):
    """The result of a path that leads to no value; null is a value."""

    MISSING = "missing"


MISSING: Final = MissingValue.MISSING

#: The attributes that CloudEvents 1.0 names, and the two members that hold the data.
KNOWN_NAMES: Final = (
    "data",
    "data_base64",
    "datacontenttype",
    "dataschema",
    "id",
    "source",
    "specversion",
    "subject",
    "time",
    "type",
)

#: The words by which `definition` recognises a message about a path that may lead to several values.
SEVERAL: Final = "to more than one value"

_ATTRIBUTE = re.compile(r"[a-z0-9]+|data_base64")
_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"\[[ \t]*(0|-?[1-9][0-9]{0,14})[ \t]*\]")
_QUOTED = re.compile(r"""\[[ \t]*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")[ \t]*\]""", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path: its text, and its steps from the event down, as names of members and indexes of elements."""

    text: str
    steps: tuple[str | int, ...]

    def find(self, document: JsonValue) -> JsonValue | MissingValue:
        """Return the value at the path in an event's document, or MISSING."""
        value = document
        for step in self.steps:
            if type(step) is str:
                if not isinstance(value, dict) or step not in value:
                    return MISSING
                value = value[step]
            elif type(step) is int:
                if not isinstance(value, list) or not -len(value) <= step < len(value):
                    return MISSING
                value = value[step]
        return value


def parse_path(text: str, where: str = "$") -> Path:
    """Return the parsed path. Raises TransformError that gives the position in the text, with `where` as its path.

    `$.a.b`, `['a b']`, `["a"]`, `[0]` and `[-1]` (the last element) lead to one value;
    `*`, `..`, slices, unions and filters lead to any number of values and are rejected.
    """
    if not text.startswith("$"):
        raise _error(text, 0, "a path must begin with $", "Write $.data.name for a part of the data", where)
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        if text[position] == "." and (name := _NAME.match(text, position + 1)):
            steps.append(name[0])
            position = name.end()
        elif index := _INDEX.match(text, position):
            steps.append(int(index[1]))
            position = index.end()
        elif quoted := _QUOTED.match(text, position):
            steps.append(_unquoted(text, quoted, where))
            position = quoted.end()
        else:
            _refuse(text, position, where)
    return Path(text, _from_the_event(text, steps, where))


def path_text(steps: Iterable[str | int]) -> str:
    """Return the text of the path with these steps, in the shortest form that `parse_path` reads."""
    parts = []
    for step in steps:
        if isinstance(step, str) and _NAME.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{json.dumps(step, ensure_ascii=False)}]")
    return "$" + "".join(parts)


def _from_the_event(text: str, steps: list[str | int], where: str) -> tuple[str | int, ...]:
    """Return the steps (`data` for `$` alone). Raises TransformError if no event can have a value at the path."""
    if not steps:
        return ("data",)
    top = steps[0]
    if isinstance(top, int):
        raise _error(text, 1, "an event is not a list", f"Write $.data[{top}] for an element of the data", where)
    if not _ATTRIBUTE.fullmatch(top):
        remedy = _nearest_name(top) or f"Write $.data{text[1:]} if it is a part of the data"
        raise _error(text, 1, f"{top!r} cannot be an attribute: only a-z and 0-9 are allowed", remedy, where)
    if len(steps) > 1 and top != "data":
        rest = text[len("$.detail") :] if text.startswith("$.detail.") else text[1:]  # as in Amazon EventBridge
        remedy = _nearest_name(top) or f"Write $.data{rest} if it is a part of the data"
        raise _error(text, 1, f"the attribute {top!r} is a single value and has no parts", remedy, where)
    return tuple(steps)


def _nearest_name(name: str) -> str | None:
    if name in KNOWN_NAMES:
        return None
    near = similar(name, KNOWN_NAMES, cutoff=0.7)
    return f"Did you mean $.{near[0]}?" if near else None


def _unquoted(text: str, quoted: re.Match[str], where: str) -> str:
    inner = quoted[1]
    if inner.startswith("'"):
        pairs = {"\\'": "'", '"': '\\"'}
        inner = '"' + re.sub(r'\\.|"', lambda pair: pairs.get(pair[0], pair[0]), inner[1:-1], flags=re.DOTALL) + '"'
    try:
        name = str(json.loads(inner))
    except json.JSONDecodeError:
        name = None
    if name is None or _SURROGATE.search(name):
        remedy = r"Write \' \" \\ \/ \b \f \n \r \t or \uXXXX"
        raise _error(
            text, quoted.start(), "the name has an escape or character that JSON does not allow", remedy, where
        )
    return name


#: Patterns for text that is not a valid step, each with a message and a remedy; the first that matches is reported.
_REFUSALS = [
    (r"\.\.|\.?\*|\[\s*\*", f"it leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*[?(]", f"a filter leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*-?\d*\s*:", f"a slice leads {SEVERAL}", "Name one element, such as [0]"),
    (r"\[[^\]]*,", f"a list of names leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*(-0|-?0\d+)\s*\]", "an index cannot have a leading zero or be -0", "Write it plainly, such as [0]"),
    (r"\[\s*-?\d{16,}\s*\]", "no list is that long", "Write a smaller number"),
    (r"\[\s*\]", "the brackets are empty", "Write [0] or ['name']"),
    (r"\[\s*['\"]", "the quoted name is not closed", "Write ['name']"),
    (r"\[[^\]]*$", "the bracket is not closed", "Write [0] or ['name']"),
    (r"\[", "the name has no quotes", "Write ['name'], or [0] for an element of a list"),
    (r"\.\d", "a name that begins with a digit needs quotes", "Write ['0'], or [0] for an element of a list"),
    (r"\.?$", "the path ends without a name", "Remove what follows the last name"),
    (r"\.?\s", "a name with a space in it needs quotes", "Write ['a name'], or remove the space"),
    (r"\.", "a name with this character needs quotes", "Write ['name']"),
    (r"", "a name must follow . or [", "Write .name, ['name'] or [0]; names with other characters need quotes"),
]


def _refuse(text: str, position: int, where: str) -> NoReturn:
    for pattern, message, remedy in _REFUSALS:
        if re.compile(pattern).match(text, position):
            raise _error(text, position, message, remedy, where)
    raise AssertionError("the last pattern matches everything")


def _error(text: str, position: int, message: str, remedy: str, where: str) -> TransformError:
    full_stop = "" if remedy.endswith("?") else "."
    message = f"the path {text!r} is invalid at character {position + 1}: {message}"
    return TransformError(message, path=where, value=text, remedy=remedy + full_stop)


def sources(value: object) -> tuple[dict[str, Path | Any], list[TransformError]]:
    """Return a Path or a constant for each name under a template's `value`, and the errors."""
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        remedy = "Write one line per name, such as id: $.data.id"
        return {}, [error_at("$.value", "the value of the TEMPLATE form must be a mapping of names", value, remedy)]
    found: dict[str, Path | Any] = {}
    errors: list[TransformError] = []
    for name, text in value.items():
        where = member("$.value", name)
        if problem := _name_problem(name):
            errors.append(error_at(where, *problem))
            continue
        try:
            found[name] = source(text, where)
        except TransformError as error:
            errors.append(error)
            found[name] = None
    return found, errors


def source(value: object, where: str) -> Path | Any:
    """Return the Path or constant that one value stands for. Raises TransformError at `where`.

    Text that begins with `$` is a path; `$$` at the beginning means a constant that begins with `$`.
    """
    if isinstance(value, str) and value.startswith("$$"):
        return value[1:]
    if isinstance(value, str) and value.startswith("$"):
        return parse_path(value, where)
    return constant(value, where)


def constant(value: object, where: str) -> Any:
    """Return a value as JSON. Raises TransformError at `where` if JSON cannot represent it."""
    try:
        return as_json_value(value)
    except EventError as error:
        raise error_at(
            where, f"the constant is not JSON: {error}", value, "Put quotes around it to make it text"
        ) from None


def _name_problem(name: object) -> tuple[str, object, str] | None:
    if not isinstance(name, str):
        return f"the name {name!r} is not text", name, "Put quotes around it"
    if name.startswith("eb."):
        return f"the name {name} is reserved: names that begin with eb. are predefined", name, "Choose another name"
    if not NAME.fullmatch(name):
        return f"{name!r} is not a valid name", name, "Use letters, digits and _ . - only, a letter, digit or _ first"
    return None


#: The maximum number of characters in a key; a longer value, such as an object, is replaced by its hash.
_MAX_KEY_LENGTH: Final = 200
#: The steps of the path to the event's id, which differs for every event and would order nothing.
_UNIQUE: Final = ("id",)


def order_path_problem(text: str) -> tuple[str, str] | None:
    """Return the error in an `ordering_key` other than `partition` and the remedy, or None if it is valid."""
    if not text.startswith("$"):
        return f"{text!r} is not a path", "Write a path, such as $.data.customer, or partition"
    try:
        path = parse_path(text)
    except TransformError as error:
        return error.message, error.remedy.removesuffix(".")
    if path.steps == _UNIQUE:
        return (
            "every event has its own id, so no two deliveries would have the same key",
            "Name a value that related events share, such as $.data.customer or $.subject",
        )
    return None


def find_order_key(text: str, document: JsonValue) -> str | None:
    """Return the value at a path as canonical JSON text, or None if there is no value.

    As in patterns, 7 and 7.0 are the same key, but 7 and "7" are not.
    """
    value = _path(text).find(document)
    if value is MISSING:
        return None
    key = canonical_text(value)
    return key if len(key) <= _MAX_KEY_LENGTH else hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1_000)
def _path(text: str) -> Path:
    return parse_path(text)
