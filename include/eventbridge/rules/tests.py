"""Reads the `tests` of a rule, and runs them with the reference matcher and the reference transforms.

`eventbridge rules check` runs them. `where` and SQL transforms are not evaluated, because only Spark can evaluate them.
A test that expects no match therefore passes if the pattern matches but the rule has `where`, which may reject the
event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from eventbridge.errors import EventBridgeError, EventError, RuleError
from eventbridge.event.cloudevent import errors_in, parse_event
from eventbridge.event.json_document import JsonValue, parse_value, write_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import explain, matches
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Rule, Target
from eventbridge.rules.node import Node
from eventbridge.similar_names import list_names, nearest
from eventbridge.transform import Rendered, Scope, compile_transform

#: The attributes that a test's event has if the test does not give them.
_FILLED_IN: dict[str, JsonValue] = {"specversion": "1.0", "id": "test", "source": "/test"}

#: The values of `${eb.delivery_id}` and `${eb.ingested_at}` in the templates of a test.
DELIVERY_ID = "00000000-0000-0000-0000-000000000000"
ARRIVED_AT = datetime(2000, 1, 1, tzinfo=UTC)
#: The maximum number of characters of a payload, a finding or an error in a message.
_SHOWN = 200


@dataclass(frozen=True)
class RuleTest:
    """A test of a rule: an event, whether it must match, and the expected outputs by target; `node` locates the
    test."""

    node: Node
    event: Mapping[str, JsonValue]
    matches: bool = True
    outputs: Mapping[str, JsonValue] = field(default_factory=dict)

    def node_of(self, name: str, target: str | None = None) -> Node:
        """Return the node of a field, or of a target in that field; the test's own node if the field is not given."""
        found: Node = self.node.value.get(name, self.node)
        if target is not None:
            found = found.value[target]
        return found


def read_tests(fields: Fields, targets: Collection[str], errors: list[RuleError]) -> list[RuleTest]:
    """Return the tests of a rule that has these targets; errors are added to `errors`."""
    node = fields.get("tests")
    if node is None:
        return []
    if not isinstance(node.value, list) or not node.value:
        what = node.kind() if node.value else "empty"
        fields.add(node, f"tests must be a list, but this is {what}", "Write - event: {type: ...} below tests")
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
            remedy = nearest(name, targets, len(errors)) or f"Its targets are {list_names(list(targets))}"
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
        fields.add(
            node, f"event must be a mapping, but this is {node.kind()}", "Write the attributes of an event below it"
        )
        return None
    event: dict[str, JsonValue] = _FILLED_IN | node.to_json()
    errors = list(errors_in(event))
    for error in errors:
        fields.add(node, f"this is not a CloudEvent: {error}", "Correct the event")
    return None if errors else event


def failures(rule: Rule, test: RuleTest) -> Iterator[RuleError]:
    """Yield an error for each difference between what the rule does and what one of its tests expects."""
    document = dict(test.event)
    matched = matches(rule.pattern, document)
    if matched != test.matches and not (matched and rule.where is not None):
        yield _match_failure(rule, test, document)
        return
    for name, wanted in test.outputs.items():
        node = test.node_of("outputs", name)
        target = rule.targets[name]
        if target.transform.form == "SQL":
            yield node.error(
                "only Spark can evaluate a transform of the form SQL",
                "Remove this output. `eventbridge rules backtest` shows it",
            )
            continue
        try:
            rendered = _render(rule, target, document)
        except EventBridgeError as error:
            yield node.error(
                f"the transform of target {name} fails: {_truncate(str(error))}", "Correct the transform or the event"
            )
            continue
        if not _same(rendered, wanted):
            got = rendered.payload.decode("utf-8", "replace")
            message = f"target {name} gets {_truncate(got)}, not {_truncate(write_document(wanted))}"
            yield node.error(message, "Correct the transform, or what the test expects")


def _match_failure(rule: Rule, test: RuleTest, document: dict[str, JsonValue]) -> RuleError:
    node = test.node_of("matches")
    if not test.matches:
        return node.error("the pattern matches this event", "Correct the pattern, or write matches: true")
    why = "; ".join(str(finding) for finding in explain(parse_pattern(rule.pattern), document))
    message = f"the pattern does not match this event: {_truncate(why)}"
    return node.error(message, "Correct the pattern, or write matches: false")


def _render(rule: Rule, target: Target, document: dict[str, JsonValue]) -> Rendered:
    body = write_document(document).encode()
    renderer = compile_transform(target.transform, content_mode=target.content_mode)
    scope = Scope(rule.name, rule.bus, target.name, DELIVERY_ID, ARRIVED_AT)
    return renderer.render(parse_event(body, max_bytes=len(body)), scope)


def _same(rendered: Rendered, wanted: JsonValue) -> bool:
    """Return whether a payload equals the expected output, compared as JSON if it is JSON, else as a string."""
    try:
        return parse_value(rendered.payload) == wanted
    except EventError:
        return isinstance(wanted, str) and rendered.payload == wanted.encode()


def _truncate(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
