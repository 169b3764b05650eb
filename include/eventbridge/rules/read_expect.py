"""Reads the expectations of a rule about its matched events."""

from __future__ import annotations

from eventbridge.errors import RuleError, TransformError
from eventbridge.rules.expect import Bounds, Expect, FieldExpectation
from eventbridge.rules.fields import Fields
from eventbridge.rules.node import Node
from eventbridge.transform.jsonpath import parse_path

_MOST_EVENTS = 1_000_000_000
_LARGEST_VALUE = 1e15
_MOST_FIELDS = 100


def read_expect(fields: Fields, errors: list[RuleError]) -> Expect | None:
    """Return the field `expect` of a rule, None if not given."""
    if (node := fields.get("expect")) is None:
        return None
    fields.refuse_empty("expect", "Write what is expected, such as matches: {at_least: 1}, or remove expect")
    own = Fields(node, errors, "an expectation")
    found = Expect(
        matches=_counts(own, "matches"),
        dead_letter_rate=_bounds(own, "dead_letter_rate", 0.0, 1.0),
        transform_failure_rate=_bounds(own, "transform_failure_rate", 0.0, 1.0),
        fields={path: _field(path, child, errors) for path, child in sorted(own.mapping("fields").items())},
    )
    own.refuse_empty("fields", "Write a path and what is expected there, such as $.data.id: {null_rate: {at_most: 0}}")
    if len(found.fields) > _MOST_FIELDS:
        own.add_to("fields", f"{len(found.fields)} fields are too many", f"Write at most {_MOST_FIELDS}")
    own.close()
    return found


def _field(path: str, node: Node, errors: list[RuleError]) -> FieldExpectation:
    try:
        parse_path(path)
    except TransformError as error:
        errors.append(node.error_at_key(error.message, error.remedy.rstrip(".")))
    own = Fields(node, errors, "a field expectation")
    found = FieldExpectation(
        null_rate=_bounds(own, "null_rate", 0.0, 1.0),
        value=_bounds(own, "value", -_LARGEST_VALUE, _LARGEST_VALUE),
    )
    if node.value == {}:
        own.add(node, f"there is no expectation about {path}", "Write null_rate: {at_most: 0}, or remove it")
    own.close()
    return found


def _counts(fields: Fields, name: str) -> Bounds | None:
    if fields.get(name) is None:
        return None
    own = fields.below(name, "bounds")
    low, high = (own.whole(end, None, 0, _MOST_EVENTS) for end in ("at_least", "at_most"))
    return _closed(fields, own, name, Bounds(at_least=low, at_most=high))


def _bounds(fields: Fields, name: str, lowest: float, highest: float) -> Bounds | None:
    if fields.get(name) is None:
        return None
    own = fields.below(name, "bounds")
    low, high = (own.real(end, 0.0, lowest, highest) if own.has(end) else None for end in ("at_least", "at_most"))
    return _closed(fields, own, name, Bounds(at_least=low, at_most=high))


def _closed(fields: Fields, own: Fields, name: str, found: Bounds) -> Bounds:
    fields.refuse_empty(name, f"Write {name}: {{at_least: ...}}, {{at_most: ...}}, or both")
    if found.at_least is not None and found.at_most is not None and found.at_least > found.at_most:
        own.add_to("at_least", "at_least is greater than at_most: nothing could meet both", "Exchange them")
    own.close()
    return found
