"""Reads a condition on one value of an event, such as `$.data.amount > 100`, as a pattern of the rule language."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from eventbridge.errors import EventError, PatternError, TransformError, UserError
from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import Pattern, parse_pattern
from eventbridge.matching.reference import flatten, matches_leaves
from eventbridge.transform.jsonpath import parse_path

MAX_CHARACTERS: Final = 500
_EXAMPLE: Final = '$.data.amount > 100, $.data.city = "Bern" or $.data.id [{"prefix": "A-"}]'
#: The path of a condition: names, and brackets with a quoted name or a number.
_PATH: Final = re.compile(
    r"""\$(?:\.[^\s.\[=!<>]+|\[\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+)\s*\])*""", re.DOTALL
)
_OPERATOR: Final = re.compile(r"(!=|>=|<=|=|>|<)(.*)", re.DOTALL)


class EventCondition:
    """A condition on events; `meets` evaluates it with the reference matcher, in time linear in the event."""

    def __init__(self, text: str, pattern: Pattern) -> None:
        self.text = text
        self._pattern = pattern

    def meets(self, body: bytes) -> bool:
        """Return whether the event with a body meets the condition."""
        try:
            return matches_leaves(self._pattern, flatten(parse_document(body)))
        except EventError:
            return False


def read_condition(text: str) -> EventCondition:
    """Return the condition that a person wrote: a JSON path, and what the value there must be.

    The path may be followed by `=`, `!=`, `>`, `>=`, `<` or `<=` and a value, or by a list of conditions as in a
    pattern; without either, the value must exist. Raises UserError that says what is wrong and what to write.
    """
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"the condition has {len(text):,} characters; at most {MAX_CHARACTERS} are allowed")
    found = _PATH.match(text)
    path, rest = (found[0], text[found.end() :].strip()) if found else (text, "")
    if found and rest[:1] in (".", "[") and not text[found.end()].isspace():
        path, rest = text, ""  # an invalid path, which the parser of paths explains
    try:
        steps = parse_path(path).steps
    except TransformError as error:
        raise UserError(f"{error.message}. {error.remedy} Write a condition such as {_EXAMPLE}") from None
    if any(isinstance(each, int) for each in steps):
        raise UserError(
            f"the path {path!r} names an element of a list. Leave the index out: any element may meet the condition"
        )
    document: Any = _conditions(path, rest)
    for name in reversed(steps):
        document = {name: document}
    try:
        return EventCondition(text, parse_pattern(document))
    except PatternError as error:
        raise UserError(f"{error.message} at {error.path}. {error.remedy}") from None


def _conditions(path: str, rest: str) -> Any:
    """Return the part of a pattern that what follows the path stands for."""
    if not rest:
        return [{"exists": True}]
    if rest.startswith("["):
        return _value(rest, f"what follows {path} is not a list of conditions in JSON")
    operator = _OPERATOR.fullmatch(rest)
    if operator is None:
        raise UserError(f"{rest!r} after {path} is not a comparison. Write a condition such as {_EXAMPLE}")
    sign, written = operator[1], operator[2].strip()
    if not written:
        raise UserError(f"there is no value after {sign}. Write a condition such as {_EXAMPLE}")
    value = _value(written, f"{written!r} is not a JSON value. Put quotes around text that has other characters")
    if sign == "=":
        return [value]
    if sign == "!=":
        return [{"anything-but": [value]}]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{written!r} is not a number, which {sign} needs. Use = or != for other values")
    return [{"numeric": [sign, value]}]


def _value(text: str, problem: str) -> Any:
    """Return JSON text as a value; one bare word is a string."""
    if re.fullmatch(r"(?!true$|false$|null$)[A-Za-z][\w.:/-]*", text):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{problem}. Write a condition such as {_EXAMPLE}") from None
