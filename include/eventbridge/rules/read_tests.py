"""Reads the `tests` of a rule: events, whether it matches them, and the expected outputs of its targets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eventbridge.errors import RuleError
from eventbridge.event.cloudevent import errors_in
from eventbridge.event.json_document import JsonValue
from eventbridge.rules.fields import Fields, nearest
from eventbridge.rules.node import Node
from eventbridge.rules.suggestions import listed

#: Default attributes of a test's event.
_FILLED_IN: dict[str, JsonValue] = {"specversion": "1.0", "id": "test", "source": "/test"}


@dataclass(frozen=True)
class RuleTest:
    """An event, whether the rule matches it, and expected outputs by target; `node` has the test's location."""

    node: Node
    event: Mapping[str, JsonValue]
    matches: bool = True
    outputs: Mapping[str, JsonValue] = field(default_factory=dict)

    def place(self, name: str, target: str | None = None) -> Node:
        """Return the node of a field, or of a target in it; the test's own if not given."""
        found: Node = self.node.value.get(name, self.node)
        if target is not None:
            found = found.value[target]
        return found


def read_tests(fields: Fields, targets: Collection[str], errors: list[RuleError]) -> list[RuleTest]:
    """Return the tests of a rule with these targets; errors are added to `errors`."""
    node = fields.get("tests")
    if node is None:
        return []
    if not isinstance(node.value, list) or not node.value:
        what = node.kind() if node.value else "empty"
        fields.add(node, f"tests is a list, and this is {what}", "Write - event: {type: ...} below tests")
        return []
    return [test for child in node.value for test in _test(child, targets, errors)]


def _test(node: Node, targets: Collection[str], errors: list[RuleError]) -> Iterator[RuleTest]:
    known = len(errors)
    fields = Fields(node, errors, "a test")
    matches = fields.flag("matches", default=True)
    event = _event(fields)
    outputs = fields.mapping("outputs")
    for name, child in outputs.items():
        if name not in targets:
            remedy = nearest(name, targets, len(errors)) or f"Its targets are {listed(list(targets))}"
            errors.append(child.error_at_key(f"the rule has no target {name!r}", remedy))
    if outputs and not matches:
        fields.add_to("outputs", "a rule that does not match has no outputs", "Remove it")
    fields.close()
    if len(errors) == known and event is not None:
        yield RuleTest(node, event, matches, {name: child.to_json() for name, child in outputs.items()})


def _event(fields: Fields) -> dict[str, Any] | None:
    node = fields.get("event", required=True)
    if node is None:
        return None
    if not isinstance(node.value, dict):
        fields.add(node, f"event is a mapping, and this is {node.kind()}", "Write the attributes of an event below it")
        return None
    event: dict[str, JsonValue] = _FILLED_IN | node.to_json()
    errors = list(errors_in(event))
    for error in errors:
        fields.add(node, f"this is not a CloudEvent: {error}", "Correct it")
    return None if errors else event
