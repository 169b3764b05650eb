"""The paths by which rules name parts of an event: RFC 9535 JSONPath, limited to paths to a single value.

Used by transforms; `$` and `$.data` are the event's data, `$.source` an attribute.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from eventbridge.errors import TransformError
from eventbridge.event.json_document import JsonValue
from eventbridge.similar_names import similar


class MissingValue(enum.Enum):
    """What a path finds where it leads to nothing; unlike null, which is a value."""

    MISSING = "missing"


MISSING: Final = MissingValue.MISSING

#: The attributes that CloudEvents 1.0 names, and the two places of the data.
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

#: Words of every message about a path that leads to any number of values.
SEVERAL: Final = "to more than one value"

_ATTRIBUTE = re.compile(r"[a-z0-9]+|data_base64")
_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"\[[ \t]*(0|-?[1-9][0-9]{0,14})[ \t]*\]")
_QUOTED = re.compile(r"""\[[ \t]*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")[ \t]*\]""", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Path:
    """A path as it was written, and its steps from the event down: names of members, numbers of elements."""

    text: str
    steps: tuple[str | int, ...]

    def find(self, document: JsonValue) -> JsonValue | MissingValue:
        """Return the value the path leads to in an event's document, MISSING if there is none."""
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
    """Return the path that `text` spells; raises TransformError with the place inside it, and `where` as its path.

    `$.a.b`, `['a b']`, `["a"]`, `[0]` and `[-1]` (the last element) lead to one value;
    `*`, `..`, slices, unions and filters lead to any number of them and are refused.
    """
    if not text.startswith("$"):
        raise _error(text, 0, "a path begins with $", "Write $.data.name for a part of the data", where)
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


def _from_the_event(text: str, steps: list[str | int], where: str) -> tuple[str | int, ...]:
    """Return the steps with `$` alone spelt out, if some event can have what they lead to."""
    if not steps:
        return ("data",)
    top = steps[0]
    if isinstance(top, int):
        raise _error(text, 1, "an event is not a list", f"Write $.data[{top}] for an element of the data", where)
    if not _ATTRIBUTE.fullmatch(top):
        remedy = _nearest_name(top) or f"Write $.data{text[1:]} if it is a part of the data"
        raise _error(text, 1, f"no event has an attribute {top!r}: a-z and 0-9 only", remedy, where)
    if len(steps) > 1 and top != "data":
        remedy = _nearest_name(top) or f"Write $.data{text[1:]} if it is a part of the data"
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
        raise _error(text, quoted.start(), "the name holds an escape or character that JSON has not", remedy, where)
    return name


#: Texts at which no step can begin, with message and remedy; the first that fits is reported.
_REFUSALS = [
    (r"\.\.|\.?\*|\[\s*\*", f"it leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*[?(]", f"a filter leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*-?\d*\s*:", f"a slice leads {SEVERAL}", "Name one element, such as [0]"),
    (r"\[[^\]]*,", f"a list of names leads {SEVERAL}", "Name one member or element, such as [0]"),
    (r"\[\s*(-0|-?0\d+)\s*\]", "a number has no leading zero and no minus zero", "Write it plainly, such as [0]"),
    (r"\[\s*-?\d{16,}\s*\]", "no list is that long", "Write a smaller number"),
    (r"\[\s*\]", "the brackets are empty", "Write [0] or ['name']"),
    (r"\[\s*['\"]", "the quoted name does not end", "Write ['name']"),
    (r"\[[^\]]*$", "the bracket is not closed", "Write [0] or ['name']"),
    (r"\[", "the name has no quotes", "Write ['name'], or [0] for an element of a list"),
    (r"\.\d", "a name that begins with a digit needs quotes", "Write ['0'], or [0] for an element of a list"),
    (r"\.?$", "the path ends without a name", "Remove what follows the last name"),
    (r"\.?\s", "a name with a space in it needs quotes", "Write ['a name'], or remove the space"),
    (r"\.", "a name with such a character needs quotes", "Write ['name']"),
    (r"", "a name begins with . or [", "Write .name, ['name'] or [0]; names with other characters need quotes"),
]


def _refuse(text: str, position: int, where: str) -> NoReturn:
    for pattern, message, remedy in _REFUSALS:
        if re.compile(pattern).match(text, position):
            raise _error(text, position, message, remedy, where)
    raise AssertionError("the last pattern fits everything")


def _error(text: str, position: int, message: str, remedy: str, where: str) -> TransformError:
    full_stop = "" if remedy.endswith("?") else "."
    message = f"the path {text!r} is wrong at character {position + 1}: {message}"
    return TransformError(message, path=where, value=text, remedy=remedy + full_stop)
