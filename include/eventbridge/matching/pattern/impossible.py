"""Finds conditions that no CloudEvent can meet, or not in every content mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventbridge.event.json_document import Number, write_document
from eventbridge.matching.pattern.attributes import ATTRIBUTES
from eventbridge.matching.pattern.nodes import All, And, Condition, Exactly, Exists, Field, Numeric, Pattern
from eventbridge.matching.pattern.write import write_condition

_REQUIRED: Final = ("id", "source", "specversion", "type")
#: Fields of the envelope that Amazon EventBridge puts around its events; here they would be extensions.
_OF_AMAZON: Final = {
    "account": "$.source or the data identifies the account",
    "region": "$.source or the data identifies the region",
    "resources": "an attribute is never a list; match $.subject, or what the data has",
    "version": "the version of a CloudEvent is specversion",
}


def pattern_warnings(pattern: Pattern) -> list[str]:
    """Return a sentence for each condition that matches nothing, and for each that depends on how an event arrives."""
    found = list(_of_clauses(pattern.where))
    return found + (list(_of_clauses(pattern.unless.pattern)) if pattern.unless else [])


def _of_clauses(where: And) -> Iterator[str]:
    for clause in where.clauses:
        if not isinstance(clause, Field):
            for alternative in clause.alternatives:
                yield from _of_clauses(alternative)
        elif clause.path[0] != "data" and len(clause.path) == 1:
            yield from _of_field(clause.path[0], clause.conditions)


def _of_field(name: str, conditions: tuple[Condition, ...]) -> Iterator[str]:
    for condition in conditions:
        if why := _impossible(name, condition):
            shown = write_document(write_condition(condition))
            yield f"$.pattern.{name}: {shown} matches no event: {why}"
    if name in _OF_AMAZON:
        yield (
            f"$.pattern.{name}: {name} is a field of Amazon EventBridge's events, and no attribute of CloudEvents. It "
            f"matches only events whose publisher adds an extension {name}; {_OF_AMAZON[name]}"
        )
    elif name not in ATTRIBUTES:
        yield from _of_extension(name, conditions)


def _impossible(name: str, condition: Condition) -> str:
    """Return why no event has an attribute that meets a condition; empty if one may."""
    if isinstance(condition, All):
        return next(filter(None, (_impossible(name, each) for each in condition.conditions)), "")
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
        return f"{name} is text. Write it in quotes: {write_document(_text(condition.value))}"
    if not condition.value:
        absent = "" if name in _REQUIRED else '. An event without it meets {"exists": false}'
        return f"{name} is never empty{absent}"
    if name == "specversion" and condition.value != "1.0":
        return 'specversion is always "1.0"'
    return ""


def _of_extension(name: str, conditions: tuple[Condition, ...]) -> Iterator[str]:
    texts = {each.value for each in conditions if isinstance(each, Exactly) and isinstance(each.value, str)}
    for condition in conditions:
        if isinstance(condition, Numeric):
            yield (
                f"$.pattern.{name}: numeric matches no event that arrives in binary mode: its extensions are text. "
                "Publish such events in structured mode, or put the number into the data"
            )
        elif isinstance(condition, Exactly) and isinstance(condition.value, (Number, bool)):
            value, text = write_document(condition.value), _text(condition.value)
            if text not in texts:
                yield (
                    f"$.pattern.{name}: {value} matches no event that arrives in binary mode: its extensions are "
                    f"text. Write [{value}, {write_document(text)}] for both modes"
                )


def _text(value: Number | bool) -> str:
    return value.text if isinstance(value, Number) else write_document(value)
