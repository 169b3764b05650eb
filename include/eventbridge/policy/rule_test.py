"""Runs a rule's own tests with the reference matcher and the reference transforms. Pure.

Called by `eventbridge rules check`. `where` and transforms of the form SQL, which only Spark can evaluate, are not
run: if a test expects no match, an event that `where` may still reject does not fail it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from eventbridge.errors import EventBridgeError, EventError, RuleError
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.json_document import JsonValue, parse_value, write_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import explain, matches
from eventbridge.rules.model import Rule, Target
from eventbridge.rules.read_tests import RuleTest
from eventbridge.transform import Rendered, Scope, compile_transform

#: The values of `${eb.delivery_id}` and `${eb.ingested_at}` of a template in a test.
DELIVERY_ID = "00000000-0000-0000-0000-000000000000"
ARRIVED_AT = datetime(2000, 1, 1, tzinfo=UTC)

_SHOWN = 200


def failures(rule: Rule, test: RuleTest) -> Iterator[RuleError]:
    """Yield an error for each difference between the rule and one of its tests."""
    document = dict(test.event)
    matched = matches(rule.pattern, document)
    if matched != test.matches and not (matched and rule.where is not None):
        yield _match_failure(rule, test, document)
        return
    for name, wanted in test.outputs.items():
        place = test.place("outputs", name)
        target = rule.targets[name]
        if target.transform.form == "SQL":
            yield place.error("only Spark evaluates the form SQL", "Remove this output; `rules backtest` shows it")
            continue
        try:
            rendered = _rendered(rule, target, document)
        except EventBridgeError as error:
            yield place.error(f"the transform of {name} fails: {_cut(str(error))}", "Correct the transform or event")
            continue
        if not _same(rendered, wanted):
            got = rendered.payload.decode("utf-8", "replace")
            message = f"{name} gets {_cut(got)}, and not {_cut(write_document(wanted))}"
            yield place.error(message, "Correct the transform, or what the test expects")


def _match_failure(rule: Rule, test: RuleTest, document: dict[str, JsonValue]) -> RuleError:
    place = test.place("matches")
    if not test.matches:
        return place.error("the pattern matches this event", "Correct the pattern, or write matches: true")
    why = "; ".join(str(finding) for finding in explain(parse_pattern(rule.pattern), document))
    message = f"the pattern does not match this event: {_cut(why)}"
    return place.error(message, "Correct the pattern, or write matches: false")


def _rendered(rule: Rule, target: Target, document: dict[str, JsonValue]) -> Rendered:
    body = write_document(document).encode()
    renderer = compile_transform(target.transform, content_mode=target.content_mode)
    scope = Scope(rule.name, rule.bus, target.name, DELIVERY_ID, ARRIVED_AT)
    return renderer.render(parse_event(body, max_bytes=len(body)), scope)


def _same(rendered: Rendered, wanted: JsonValue) -> bool:
    """Return whether a payload equals the expected one: as JSON if it is JSON, else as text."""
    try:
        return parse_value(rendered.payload) == wanted
    except EventError:
        return isinstance(wanted, str) and rendered.payload == wanted.encode()


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
