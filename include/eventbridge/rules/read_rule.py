"""Reads a bus with its webhooks, and a rule with its expectations, from a rule file."""

from __future__ import annotations

from typing import Any

from eventbridge.errors import RuleError, TransformError
from eventbridge.event.json_document import Number
from eventbridge.matching.pattern import ExpressionSizes, rule_pattern_errors
from eventbridge.rules.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rules.model import (
    DAY_SECONDS,
    PENDING_MAX,
    Bounds,
    Bus,
    Expect,
    FieldExpectation,
    Rule,
    Source,
    Webhook,
)
from eventbridge.rules.node import Node, located
from eventbridge.rules.read_target import (
    close_fields,
    likely_type,
    read_by_model,
    read_pending_max,
    read_target,
    read_type,
)
from eventbridge.rules.tests import RuleTest, read_tests
from eventbridge.rules.types import SOURCE_TYPES
from eventbridge.rules.vocabulary import FIELDS, PRIORITIES, SIGNATURES, SOURCE_TYPES_LATER
from eventbridge.similar_names import list_names, nearest
from eventbridge.transform.jsonpath import parse_path
from eventbridge.transform.sql.parser import expression_problem

#: The valid weights of a topic.
_WEIGHTS = frozenset(map(str, range(1, 101)))
#: The prefixes of the pools that EventBridge creates.
_OUR_POOLS = ("eventbridge.",)
_MAX_EVENTS = 1_000_000_000
_LARGEST_VALUE = 1e15
_MAX_FIELDS = 100


def read_bus(name: str, node: Node, errors: list[RuleError]) -> Bus:
    """Return the bus that a mapping describes; a wrong field adds an error to `errors` and gets its default."""
    check_name(name, "bus", node, errors)
    fields = Fields(node, errors, "a bus")
    source = _source(fields.get("source", required=True), errors)
    bus = Bus(
        name=name,
        source=source,
        owner=fields.name("owner") or None,
        retention_seconds=fields.duration("retention", 30 * DAY_SECONDS, 3_600.0, 3_650 * DAY_SECONDS),
        max_backlog=fields.whole("max_backlog", None, 1, 1_000_000_000_000),
        webhooks=read_webhooks(fields, errors),
        weights=_weights(fields, source, errors),
    )
    fields.close()
    return bus


def read_rule(name: str, node: Node, errors: list[RuleError], expressions: ExpressionSizes | None = None) -> Rule:
    """Return the rule that a mapping describes; a wrong field adds an error to `errors` and gets its default.

    `expressions` collects the regular expressions of all rules in one load; those of this rule are added.
    """
    check_name(name, "rule", node, errors)
    fields = Fields(node, errors, "a rule")
    bus = fields.name("bus", required=True)
    pattern = fields.get("pattern", required=True)
    rule = Rule(
        name=name,
        description=fields.text("description"),
        owner=fields.name("owner") or None,
        bus=bus,
        runner=fields.name("runner", bus),
        enabled=fields.flag("enabled", default=True),
        pattern=_pattern(pattern, fields, errors, expressions),
        where=_where(fields),
        priority=fields.choice("priority", "medium", PRIORITIES),
        concurrency=fields.whole("concurrency", None, 1, 10_000),
        pool=_pool(fields),
        expect=read_expect(fields, errors),
        pending_max=read_pending_max(fields, PENDING_MAX, errors),
        targets={target: read_target(target, child, errors) for target, child in _targets(fields, errors)},
    )
    _check_shadows(rule, fields, errors)
    tests_of(rule, fields, errors)
    fields.close()
    return rule


def tests_of(rule: Rule, fields: Fields, errors: list[RuleError]) -> list[RuleTest]:
    """Return the tests of a rule.

    Tests are not part of the rule's model, so that a rule's version stays the same when its tests change.
    """
    return read_tests(fields, list(rule.targets), errors)


def check_name(name: str, noun: str, node: Node, errors: list[RuleError]) -> None:
    """Record an error if the name of a bus, rule or target cannot be part of a DAG id or a path."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a {noun}", NAME_REMEDY))


def _weights(fields: Fields, source: Source, errors: list[RuleError]) -> dict[str, int]:
    found: dict[str, int] = {}
    fields.refuse_empty("weights", "Write weights: {TOPIC: 2}, or remove it")
    for topic, node in fields.mapping("weights").items():
        if topic not in source.topics:
            remedy = (
                nearest(topic, source.topics, len(errors)) or f"Name one of its topics: {list_names(source.topics)}"
            )
            fields.add(node, f"the bus has no topic {topic!r}", remedy)
        elif not isinstance(node.value, Number) or node.value.text not in _WEIGHTS:
            fields.add(node, f"the weight of {topic} must be a whole number from 1 to 100", f"Write {topic}: 2")
        else:
            found[topic] = int(node.value.text)
    return found


def _source(node: Node | None, errors: list[RuleError]) -> Source:
    if node is None:
        return Source(type="")  # the error is recorded, so the result is never used
    fields = Fields(node, errors, "a source")
    kind = read_type(fields, SOURCE_TYPES, SOURCE_TYPES_LATER)
    likely = kind or likely_type(fields, SOURCE_TYPES)
    fields.complete = kind is not None
    values: dict[str, Any] = {"type": likely.name}
    if "topics" in likely.own_words:
        values["topics"] = fields.names("topics", Source(type="").topics)
    if "start_at" in likely.own_words:
        values["start_at"] = fields.time("start_at", "latest", ("latest", "earliest"))
    close_fields(fields, SOURCE_TYPES, kind, likely, likely.own_words, "source")
    if likely.read is not None:
        return likely.fields(**values, **likely.read(fields))
    own = [word for word in likely.own_words if word not in values]
    return read_by_model(fields, likely.fields, own, values) or Source(**values)


def _pattern(
    node: Node | None, fields: Fields, errors: list[RuleError], expressions: ExpressionSizes | None
) -> dict[str, object]:
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        remedy = "Write pattern: {} to match every event of the bus"
        fields.add(node, f"pattern must be a mapping, but this is {node.kind()}", remedy)
        return {}
    pattern: dict[str, object] = node.to_json()
    found = [located(error, node) for error in rule_pattern_errors(pattern, expressions)]
    errors.extend(error for error in found if error is not None)
    return pattern


def _where(fields: Fields) -> str | None:
    text = fields.text("where")
    if text and (problem := expression_problem(text)):
        fields.add_to("where", *problem)
    return text or None


def _pool(fields: Fields) -> str | None:
    pool = fields.name("pool") or None
    if pool is not None and (pool.startswith(_OUR_POOLS) or pool == "default_pool"):
        remedy = "Choose another name; concurrency: n creates the pool eventbridge.rule.<rule>"
        fields.add_to("pool", f"the pool name {pool!r} is reserved for EventBridge", remedy)
    return pool


def _check_shadows(rule: Rule, fields: Fields, errors: list[RuleError]) -> None:
    others = [each.name for each in rule.targets.values() if each.shadow_of is None]
    for target in rule.targets.values():
        if target.shadow_of is None:
            continue
        node = fields.mapping("targets")[target.name].value["shadow_of"]
        shadowed = rule.targets.get(target.shadow_of)
        if shadowed is None or shadowed is target:
            remedy = nearest(target.shadow_of, others, len(errors)) or "Name another target of this rule"
            fields.add(node, f"there is no other target {target.shadow_of!r}", remedy)
        elif shadowed.shadow_of is not None:
            fields.add(node, f"{target.shadow_of!r} is itself a shadow", f"Write shadow_of: {shadowed.shadow_of}")


def _targets(fields: Fields, errors: list[RuleError]) -> list[tuple[str, Node]]:
    targets = fields.mapping("targets", required=True)
    if not targets:
        fields.refuse_empty("targets", "Add one: a name, and below it type: http or type: file")
    for name, child in targets.items():
        check_name(name, "target", child, errors)
    return sorted(targets.items())  # as in the frozen form, so that parsed and cached rules have the same order


def read_webhooks(fields: Fields, errors: list[RuleError]) -> dict[str, Webhook]:
    """Return the webhooks of a bus; errors are added to `errors`."""
    return {name: _webhook(name, node, errors) for name, node in fields.mapping("webhooks").items()}


def _webhook(name: str, node: Node, errors: list[RuleError]) -> Webhook:
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a webhook", NAME_REMEDY))
    fields = Fields(node, errors, "a webhook")
    read = Webhook(
        signature=fields.choice("signature", SIGNATURES[0], SIGNATURES, required=True),
        connection=fields.name("connection", required=True),
        mapping=_mapping(fields),
    )
    fields.close()
    return read


def _mapping(fields: Fields) -> dict[str, str]:
    if fields.get("mapping") is None:
        return {}
    own = fields.nested("mapping", "a webhook's mapping")
    texts = {name: own.text(name) for name in FIELDS["a webhook's mapping"]}
    own.close()
    return {name: text for name, text in texts.items() if text}


def read_expect(fields: Fields, errors: list[RuleError]) -> Expect | None:
    """Return the expectations of a rule, or None if the `expect` field is not given."""
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
    if len(found.fields) > _MAX_FIELDS:
        own.add_to("fields", f"{len(found.fields)} fields are too many", f"Write at most {_MAX_FIELDS}")
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
        own.add(node, f"no expectation is given for {path}", "Write null_rate: {at_most: 0}, or remove it")
    own.close()
    return found


def _counts(fields: Fields, name: str) -> Bounds | None:
    if fields.get(name) is None:
        return None
    own = fields.nested(name, "bounds")
    low, high = (own.whole(end, None, 0, _MAX_EVENTS) for end in ("at_least", "at_most"))
    return _close_bounds(fields, own, name, Bounds(at_least=low, at_most=high))


def _bounds(fields: Fields, name: str, lowest: float, highest: float) -> Bounds | None:
    if fields.get(name) is None:
        return None
    own = fields.nested(name, "bounds")
    low, high = (own.real(end, 0.0, lowest, highest) if own.has(end) else None for end in ("at_least", "at_most"))
    return _close_bounds(fields, own, name, Bounds(at_least=low, at_most=high))


def _close_bounds(fields: Fields, own: Fields, name: str, bounds: Bounds) -> Bounds:
    fields.refuse_empty(name, f"Write {name}: {{at_least: ...}}, {{at_most: ...}}, or both")
    if bounds.at_least is not None and bounds.at_most is not None and bounds.at_least > bounds.at_most:
        own.add_to("at_least", "at_least is greater than at_most, so nothing can meet both", "Swap them")
    own.close()
    return bounds
