"""Holds the values of a rule file with their locations, and finds a value by its path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from eventbridge.errors import PatternError, RuleError, TransformError
from eventbridge.event.json_document import Number

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$-]+", re.ASCII)

# .name, [0], ["any text"] or ['any text']
_STEP = re.compile(r"""\.([^.\[\]"']+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\['((?:[^'\\]|\\.)*)'\]""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Location:
    """A position in a file: the file's name as shown to the user, and line and column, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def error(self, path: str, message: str, remedy: str) -> RuleError:
        """Return an error at this location; `message` ends without a full stop, and `remedy` gets one if needed."""
        closed = remedy if remedy.endswith((".", "?", "!")) else f"{remedy}."
        return RuleError(self.file, self.line, self.column, path, message, closed)


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a file: its JSON path, its location, and its key's location.

    `value` is a str, Number, bool, None, list of nodes or dict of nodes. If `spoilt`, it is a substitute for a value
    that already has a recorded error.
    """

    path: str
    location: Location
    key: Location
    value: Any
    spoilt: bool = False

    def error(self, message: str, remedy: str) -> RuleError:
        """Return an error in this value."""
        return self.location.error(self.path, message, remedy)

    def error_at_key(self, message: str, remedy: str) -> RuleError:
        """Return an error at this value's key, for a value that should have another name or should not be given."""
        return self.key.error(self.path, message, remedy)

    def to_json(self) -> Any:
        """Return the plain JSON value; a spoilt scalar becomes an empty string."""
        match self.value:
            case dict():
                return {name: child.to_json() for name, child in self.value.items()}
            case list():
                return [child.to_json() for child in self.value]
            case _:
                return "" if self.spoilt else self.value

    def is_spoilt_within(self) -> bool:
        """Return whether this value or one inside it has a recorded error."""
        return self.spoilt or any(child.is_spoilt_within() for child in self.children())

    def children(self) -> list[Node]:
        """Return the values directly inside this one."""
        match self.value:
            case dict():
                return list(self.value.values())
            case list():
                return self.value
            case _:
                return []

    def kind(self) -> str:
        """Return the kind of the value, in words for an error message."""
        match self.value:
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case bool():
                return "true or false"
            case None:
                return "empty"
            case Number():
                return "a number"
            case _:
                return "text"


def path_of(parent: str, step: str | int) -> str:
    """Return the JSON path of a child, e.g. `$.rules.big-orders`, `$.rules['a b']`, `$.targets[0]`."""
    if isinstance(step, int):
        return f"{parent}[{step}]"
    if _PLAIN_NAME.fullmatch(step):
        return f"{parent}.{step}"
    escaped = re.sub(r"([\\'])", r"\\\1", step)
    return f"{parent}['{escaped}']"


def located(error: PatternError | TransformError, top: Node) -> RuleError | None:
    """Return an error inside the value `top` as an error in its file, at the deepest existing value on its path.

    The result is None if that value already has a recorded error, of which this one may be a consequence.
    """
    node = _find(top, error.path)
    if node.is_spoilt_within():
        return None
    path = top.path + error.path.removeprefix("$")
    return node.key.error(path, error.message, error.remedy or "Correct it")


def _find(top: Node, path: str) -> Node:
    node = top
    for name, index, *quoted in _STEP.findall(path):
        step = name or re.sub(r"\\(.)", r"\1", "".join(quoted), flags=re.DOTALL)
        if index and isinstance(node.value, list) and int(index) < len(node.value):
            node = node.value[int(index)]
        elif not index and isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
        else:
            return node
    return node
