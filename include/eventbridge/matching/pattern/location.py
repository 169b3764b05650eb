"""Holds the parser's position in a pattern and the errors found so far, and reads raw values from JSON or YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from eventbridge.errors import EventError, PatternError
from eventbridge.event.json_document import as_json_value, type_name, write_document
from eventbridge.matching.pattern.expression import Expressions
from eventbridge.matching.pattern.nodes import Scalar
from eventbridge.similar_names import similar

Step: TypeAlias = str | int

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def json_path(steps: tuple[Step, ...]) -> str:
    """Return keys and indices as a JSON path: `("data", "a.b", 0)` is `$.data['a.b'][0]`."""
    return "$" + "".join(_write_step(step) for step in steps)


@dataclass(frozen=True)
class Location:
    """A position in the pattern; `/` returns the position of a key or index inside it, `wrong` reports an error.

    `expressions` counts the regular expressions of the whole pattern.
    """

    steps: tuple[Step, ...] = ()
    errors: list[PatternError] = field(default_factory=list)
    expressions: Expressions = field(default_factory=Expressions)

    def __truediv__(self, step: Step) -> Location:
        return Location((*self.steps, step), self.errors, self.expressions)

    def wrong(self, message: str, value: object, remedy: str) -> None:
        """Add an error about `value`, the value at this position; `remedy` is a sentence that says what to write."""
        self.errors.append(PatternError(message, path=json_path(self.steps), value=value, remedy=remedy))


def _write_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return f".{step}"
    escaped = re.sub(r"([\\'])", r"\\\1", step)
    return f"['{escaped}']"


def is_scalar(value: object) -> bool:
    """Return whether a raw value is neither an object nor a list: a string, number, boolean, null or not JSON."""
    return not isinstance(value, (Mapping, list, tuple))


def format_value(value: object) -> str:
    """Return a raw value as JSON of at most 60 characters, for a message."""
    try:
        text = write_document(value)
    except EventError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_scalar(value: Any, here: Location) -> tuple[Scalar, bool]:
    """Return a raw scalar as a JSON value, and whether it is valid; if not, report an error at `here`."""
    try:
        return cast(Scalar, as_json_value(value)), True
    except EventError as error:
        here.wrong(str(error), value, "Write a string, number, boolean or null; write a date in quotes.")
        return None, False


def read_text(value: Any, here: Location, example: str) -> str | None:
    """Return a string argument; if it is not a string, report an error that suggests `example` and return None."""
    if isinstance(value, str):
        return str(value)
    remedy = f"Write {example}."
    if isinstance(value, (list, tuple)):
        remedy = "The operator takes one string; write one object per string, as in " + (
            ", ".join(format_value({here.steps[-1]: text}) for text in value[:2]) or example
        )
        remedy += "."
    here.wrong(f"a string is expected, not {type_name(value)}", value, remedy)
    return None


_OPERATOR_BY_SYNONYM = {
    "eq": "exactly",
    "equal": "exactly",
    "equals": "exactly",
    "is": "exactly",
    "starts-with": "prefix",
    "startswith": "prefix",
    "begins-with": "prefix",
    "ends-with": "suffix",
    "endswith": "suffix",
    "ignore-case": "equals-ignore-case",
    "iequals": "equals-ignore-case",
    "like": "wildcard",
    "glob": "wildcard",
    "shellstyle": "wildcard",
    "includes": "contains",
    "has": "contains",
    "substring": "contains",
    "match": "regex",
    "matches": "regex",
    "regexp": "regex",
    "not": "anything-but",
    "ne": "anything-but",
    "not-in": "anything-but",
    "none-of": "anything-but",
    "gt": "numeric",
    "gte": "numeric",
    "ge": "numeric",
    "lt": "numeric",
    "lte": "numeric",
    "le": "numeric",
    "between": "numeric",
    "range": "numeric",
    "=": "numeric",
    "==": "numeric",
    "!=": "numeric",
    "<": "numeric",
    "<=": "numeric",
    ">": "numeric",
    ">=": "numeric",
    "exist": "exists",
    "present": "exists",
    "ip": "cidr",
    "ip-address": "cidr",
    "ip-address-in-range": "cidr",
    "subnet": "cidr",
    "and": "all",
    "all-of": "all",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the operator of `known` that `word` most likely means, judged by synonyms, then by spelling, or None."""
    names = list(known)
    spelled = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in word).strip("-")
    spelled = spelled.replace("_", "-").replace(" ", "-")
    for candidate in (word.lower(), spelled):
        if _OPERATOR_BY_SYNONYM.get(candidate, candidate) in names:
            return _OPERATOR_BY_SYNONYM.get(candidate, candidate)
    return next(iter(similar(spelled, names)), None)
