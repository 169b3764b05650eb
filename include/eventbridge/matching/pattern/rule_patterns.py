"""Checks a rule's pattern beyond its syntax: its top-level keys, and conditions that no CloudEvent can meet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from eventbridge.errors import PatternError
from eventbridge.event.json_document import Number, write_document
from eventbridge.matching.pattern.expression import ExpressionSizes
from eventbridge.matching.pattern.location import Location, format_value
from eventbridge.matching.pattern.nodes import All, And, Condition, Exactly, Exists, Field, Numeric, Pattern
from eventbridge.matching.pattern.parse import find_errors
from eventbridge.matching.pattern.write import write_condition
from eventbridge.similar_names import similar

ATTRIBUTES: Final = (
    "id",
    "source",
    "specversion",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "data",
)
"""The attributes of CloudEvents 1.0, and `data`; any other name of lower-case letters and digits is an extension."""

_EXTENSION = re.compile("[a-z0-9]+")
_NAMES_ON_OTHER_BUSES: Final = {"detail-type": "type", "detail": "data", "detailType": "type", "eventType": "type"}


def rule_pattern_errors(pattern: Mapping[Any, Any], expressions: ExpressionSizes | None = None) -> list[PatternError]:
    """Return all errors in the pattern of a rule: those of `find_errors`, and top-level keys that no CloudEvent has.

    Inside `data`, any key is allowed.
    """
    errors = find_errors(pattern, expressions)
    if isinstance(pattern, Mapping):
        top = Location(errors=errors)
        _check_keys(pattern, top)
    return errors


def _check_keys(pattern: Mapping[Any, Any], here: Location) -> None:
    for key, value in pattern.items():
        if key == "$not" and isinstance(value, Mapping):
            _check_keys(value, here / key)
        elif key == "$or" and isinstance(value, (list, tuple)):
            for index, alternative in enumerate(value):
                if isinstance(alternative, Mapping):
                    _check_keys(alternative, here / key / index)
        elif isinstance(key, str) and key not in ("$or", "$not"):
            _check_attribute(key, value, here / key)


def _check_attribute(key: str, value: Any, here: Location) -> None:
    if key in ("data_base64", "database64"):
        remedy = "Match an attribute such as type, source or subject instead."
        here.wrong("binary data cannot be matched", value, remedy)
    elif not _EXTENSION.fullmatch(key):
        meant = _NAMES_ON_OTHER_BUSES.get(key) or next(iter(similar(key.lower(), ATTRIBUTES)), None)
        remedy = (
            f'Did you mean "{meant}"?'
            if meant
            else f'Fields of the data are written below it: "data": {{"{key}": ...}}.'
        )
        here.wrong(f"{format_value(key)} is not a CloudEvents attribute (lower-case letters and digits)", value, remedy)
    elif isinstance(value, Mapping) and value and key != "data":
        meant = _NAMES_ON_OTHER_BUSES.get(key) or next(iter(similar(key, ["data"])), None)
        remedy = f'Did you mean "{meant}"?' if meant else f'Write a list of values, or "data": {{"{key}": ...}}.'
        here.wrong(f"the attribute {format_value(key)} cannot contain fields: only data is an object", value, remedy)


_REQUIRED: Final = ("id", "source", "specversion", "type")
#: The envelope fields of Amazon EventBridge's events, which are extensions in a CloudEvent, with what to match instead.
_AMAZON_FIELDS: Final = {
    "account": "$.source or the data identifies the account",
    "region": "$.source or the data identifies the region",
    "resources": "an attribute is never a list; match $.subject or the data",
    "version": "the version of a CloudEvent is specversion",
}


def pattern_warnings(pattern: Pattern) -> list[str]:
    """Return a warning for each condition that matches no event, or whose result depends on how an event arrives."""
    found = list(_clause_warnings(pattern.where))
    return found + (list(_clause_warnings(pattern.unless.pattern)) if pattern.unless else [])


def _clause_warnings(where: And) -> Iterator[str]:
    for clause in where.clauses:
        if not isinstance(clause, Field):
            for alternative in clause.alternatives:
                yield from _clause_warnings(alternative)
        elif clause.path[0] != "data" and len(clause.path) == 1:
            yield from _field_warnings(clause.path[0], clause.conditions)


def _field_warnings(name: str, conditions: tuple[Condition, ...]) -> Iterator[str]:
    for condition in conditions:
        if why := _why_impossible(name, condition):
            shown = write_document(write_condition(condition))
            yield f"$.pattern.{name}: {shown} matches no event: {why}"
    if name in _AMAZON_FIELDS:
        yield (
            f"$.pattern.{name}: {name} is a field of Amazon EventBridge's events, not an attribute of CloudEvents. It "
            f"matches only events whose publisher adds an extension {name}; {_AMAZON_FIELDS[name]}"
        )
    elif name not in ATTRIBUTES:
        yield from _extension_warnings(name, conditions)


def _why_impossible(name: str, condition: Condition) -> str:
    """Return why no event has an attribute that meets a condition; empty if an event may have one."""
    if isinstance(condition, All):
        return next(filter(None, (_why_impossible(name, each) for each in condition.conditions)), "")
    if name not in ATTRIBUTES:
        return ""
    if isinstance(condition, Numeric):
        return f"{name} is text, never a number"
    if isinstance(condition, Exists):
        return f"every event has {name}" if name in _REQUIRED and not condition.there else ""
    if not isinstance(condition, Exactly):
        return ""
    if condition.value is None:
        return f"every event has {name}" if name in _REQUIRED else ""
    if not isinstance(condition.value, str):
        return f"{name} is text. Write it in quotes: {write_document(_text_form(condition.value))}"
    if not condition.value:
        absent = "" if name in _REQUIRED else '. An event without it meets {"exists": false}'
        return f"{name} is never empty{absent}"
    if name == "specversion" and condition.value != "1.0":
        return 'specversion is always "1.0"'
    return ""


def _extension_warnings(name: str, conditions: tuple[Condition, ...]) -> Iterator[str]:
    texts = {each.value for each in conditions if isinstance(each, Exactly) and isinstance(each.value, str)}
    for condition in conditions:
        if isinstance(condition, Numeric):
            yield (
                f"$.pattern.{name}: numeric matches no event that arrives in binary mode: its extensions are text. "
                "Publish such events in structured mode, or put the number into the data"
            )
        elif isinstance(condition, Exactly) and isinstance(condition.value, (Number, bool)):
            value, text = write_document(condition.value), _text_form(condition.value)
            if text not in texts:
                yield (
                    f"$.pattern.{name}: {value} matches no event that arrives in binary mode: its extensions are "
                    f"text. Write [{value}, {write_document(text)}] for both modes"
                )


def _text_form(value: Number | bool) -> str:
    return value.text if isinstance(value, Number) else write_document(value)
