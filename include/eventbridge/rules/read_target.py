"""Reads one target of a rule, with its transform and retry policy."""

from __future__ import annotations

from typing import Any

from eventbridge.errors import RuleError
from eventbridge.rules.fields import Fields
from eventbridge.rules.locate import located
from eventbridge.rules.model import DAY_SECONDS, RetryPolicy, Target, Transform, queue_of
from eventbridge.rules.node import Node
from eventbridge.rules.read_type import close_fields, likely_type, read_by_model, read_type
from eventbridge.rules.read_waiting import read_waiting
from eventbridge.rules.types import TARGET_TYPES, TargetType
from eventbridge.rules.vocabulary import (
    CUSTOM_ONLY,
    ERRORS_TOLERANCE,
    NOT_FOR_QUEUES,
    NOT_FOR_SHADOWS,
    POLICIES,
    POLICY_ALIASES,
    TARGET_TYPES_LATER,
)
from eventbridge.transform import order_path_problem, transform_errors


def read_target(name: str, node: Node, errors: list[RuleError]) -> Target:
    """Return the target that a mapping describes; errors are added to `errors` and replaced by defaults."""
    fields = Fields(node, errors, "a target")
    kind = read_type(fields, TARGET_TYPES, TARGET_TYPES_LATER)
    transform = _transform(fields.get("transform"), errors)
    if transform.form not in ("ORIGINAL", "FIELDS"):
        message = f"{{}} is for the forms ORIGINAL and FIELDS, and this is {transform.form}"
        fields.refuse(["content_mode"], message, "Remove it")
    values = {
        "name": name,
        "transform": transform,
        "retry": _retry(fields.get("retry"), errors),
        "dead_letter_queue": _dead_letter_queue(name, fields.get("dead_letter_queue"), errors),
        "errors_tolerance": fields.choice("errors_tolerance", "all", ERRORS_TOLERANCE),
        "ordering_key": _ordering_key(fields),
        "disable_after_seconds": fields.duration("disable_after", None, 3_600.0, 365 * DAY_SECONDS),
        "rate_per_second": fields.rate("rate"),
        "shadow_of": fields.name("shadow_of") or None,
        **read_waiting(fields, errors),
    }
    if values["shadow_of"] is not None:
        message = "{} is not for a shadow: it is tried once, at once, and its failures have no consequences"
        fields.refuse(NOT_FOR_SHADOWS, message, "Remove it, or shadow_of")
    return _of_type(fields, kind, transform, values)


def _ordering_key(fields: Fields) -> str | None:
    text = fields.text("ordering_key")
    node = fields.get("errors_tolerance")
    if text and node is not None and node.value == "none":
        message = "errors_tolerance: none keeps all deliveries of the target in one order, without a key"
        fields.add_to("ordering_key", message, "Remove ordering_key, or write errors_tolerance: all")
    elif text and text != "partition" and (problem := order_path_problem(text)):
        fields.add_to("ordering_key", *problem)
    return text or None


def _dead_letter_queue(target: str, node: Node | None, errors: list[RuleError]) -> Target | None:
    if node is None:
        return None
    fields = Fields(node, errors, "a dead letter queue")
    kind = read_type(fields, TARGET_TYPES, TARGET_TYPES_LATER)
    # content_mode data: what is sent is the dead letter as it is, not an event
    values = {"name": queue_of(target), "content_mode": "data", "retry": _retry(fields.get("retry"), errors)}
    return _of_type(fields, kind, None, values)


def _of_type(fields: Fields, kind: TargetType | None, transform: Transform | None, values: dict[str, Any]) -> Target:
    """Return the target with the fields of its type, and record unknown fields."""
    likely = kind or likely_type(fields, TARGET_TYPES)
    fields.complete = kind is not None
    own = [word for word in likely.own_words if transform is not None or word not in NOT_FOR_QUEUES]
    close_fields(fields, TARGET_TYPES, kind, likely, own, "target")
    if likely.read is not None:
        return likely.fields(type=likely.name, **(likely.read(fields, transform) | values))
    # on failure an error is recorded, so the result is not used
    return read_by_model(fields, likely.fields, own, {"type": likely.name, **values}) or Target(type="", **values)


def _transform(node: Node | None, errors: list[RuleError]) -> Transform:
    if node is None:
        return Transform()
    definition = node.to_json()
    found = [located(error, node) for error in transform_errors(definition)]
    errors.extend(error for error in found if error is not None)
    if found or node.is_spoilt_within():
        return Transform()
    # missing: null is the word null to a reader, although YAML reads it as nothing
    return Transform(**{name: value for name, value in definition.items() if name == "value" or value is not None})


def _retry(node: Node | None, errors: list[RuleError]) -> RetryPolicy:
    if node is None:
        return RetryPolicy()
    fields = Fields(node, errors, "a retry policy")
    fields.close()
    policy = fields.choice("policy", "custom" if fields.has("policy") else POLICIES[0], (*POLICIES, *POLICY_ALIASES))
    policy = POLICY_ALIASES.get(policy, policy)
    age = fields.duration("maximum_event_age", DAY_SECONDS, 1.0, 30 * DAY_SECONDS)
    named = RetryPolicy.named(policy, age)
    if policy != "custom":
        fields.refuse(CUSTOM_ONLY, f"{{}} is fixed by the policy {policy}", "Remove it, or write policy: custom")
        return named
    custom = RetryPolicy(
        policy="custom",
        max_retries=fields.whole("max_retries", named.max_retries, 0, 1_000),
        initial_delay_seconds=fields.duration("initial_delay", named.initial_delay_seconds, 0.0, DAY_SECONDS),
        multiplier=fields.real("multiplier", named.multiplier, 1.0, 100.0),
        max_delay_seconds=fields.duration("max_delay", named.max_delay_seconds, 0.0, DAY_SECONDS),
        jitter=fields.real("jitter", named.jitter, 0.0, 1.0),
        maximum_event_age_seconds=age,
    )
    if custom.max_delay_seconds < custom.initial_delay_seconds:
        fields.add_to("max_delay", "max_delay is below initial_delay", "Write a max_delay of at least initial_delay")
    return custom
