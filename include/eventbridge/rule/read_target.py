"""Reads one target of a rule, with its transform and retry policy."""

from __future__ import annotations

from typing import Any

from eventbridge.duration import write_duration
from eventbridge.errors import Mistake
from eventbridge.rule.address import path_mistake, url_mistake
from eventbridge.rule.fields import Fields
from eventbridge.rule.locate import located
from eventbridge.rule.model import DAY_SECONDS, RetryPolicy, Target, Transform, queue_of
from eventbridge.rule.node import Node
from eventbridge.rule.read_batch import read_batch
from eventbridge.rule.read_waiting import read_waiting
from eventbridge.rule.vocabulary import (
    CONTENT_MODES,
    ERRORS_TOLERANCE,
    FILE_ONLY,
    HTTP_ONLY,
    OWN_ONLY,
    POLICIES,
    POLICY_ALIASES,
    TARGET_TYPES,
    TARGET_TYPES_LATER,
)
from eventbridge.transform import order_path_problem, transform_mistakes


def read_target(name: str, node: Node, mistakes: list[Mistake]) -> Target:
    """Return the target that a mapping describes; what is wrong is added to `mistakes` and replaced by a default."""
    fields = Fields(node, mistakes, "a target")
    kind = _kind(fields)
    transform = _transform(fields.get("transform"), mistakes)
    if transform.form not in ("ORIGINAL", "FIELDS"):
        message = f"{{}} is for the forms ORIGINAL and FIELDS, and this is {transform.form}"
        fields.refuse(["content_mode"], message, "Remove it")
    target = Target(
        name=name,
        type=kind or "http",
        transform=transform,
        retry=_retry(fields.get("retry"), mistakes),
        dead_letter_queue=_queue(name, fields.get("dead_letter_queue"), mistakes),
        errors_tolerance=fields.choice("errors_tolerance", "all", ERRORS_TOLERANCE),
        ordered_by=_ordered_by(fields),
        content_mode=fields.choice("content_mode", "structured", CONTENT_MODES) if kind != "file" else "structured",
        disable_after_seconds=fields.duration("disable_after", None, 3_600.0, 365 * DAY_SECONDS),
        rate_per_second=fields.rate("rate"),
        batch=read_batch(fields, transform, mistakes) if kind != "file" else None,
        **read_waiting(fields, mistakes),
        **_address_fields(fields, mistakes, kind),
    )
    fields.close()
    return target


def _ordered_by(fields: Fields) -> str | None:
    text = fields.text("ordered_by")
    node = fields.get("errors_tolerance")
    if text and node is not None and node.value == "none":
        message = "errors_tolerance: none keeps all deliveries of the target in one order, by no key"
        fields.add_to("ordered_by", message, "Remove ordered_by, or write errors_tolerance: all")
    elif text and text != "queue" and (problem := order_path_problem(text)):
        fields.add_to("ordered_by", *problem)
    return text or None


def _queue(target: str, node: Node | None, mistakes: list[Mistake]) -> Target | None:
    if node is None:
        return None
    fields = Fields(node, mistakes, "a dead letter queue")
    kind = _kind(fields)
    # content_mode data: what is sent is the letter as it is, not an event
    queue = Target(
        name=queue_of(target),
        type=kind or "http",
        content_mode="data",
        retry=_retry(fields.get("retry"), mistakes),
        **_address_fields(fields, mistakes, kind),
    )
    fields.close()
    return queue


def _kind(fields: Fields) -> Any:
    kind = fields.choice("type", None, TARGET_TYPES, TARGET_TYPES_LATER, required=True)
    if kind == "http":
        fields.refuse(FILE_ONLY, "an http target has no {}", "Remove it")
    if kind == "file":
        fields.refuse(HTTP_ONLY, "a file target has no {}", "Remove it")
    return kind


def _address_fields(fields: Fields, mistakes: list[Mistake], kind: str | None) -> dict[str, Any]:
    return {
        **(_http_fields(fields, mistakes, required=kind == "http") if kind != "file" else {}),
        **(_file_fields(fields, required=kind == "file") if kind != "http" else {}),
    }


def _http_fields(fields: Fields, mistakes: list[Mistake], *, required: bool) -> dict[str, Any]:
    allow_http = fields.flag("allow_http", default=False)
    # a connection may hold the URL; whether it does, only a running task can see
    url = fields.text("url", required=required and not fields.has("connection"))
    if url and (problem := url_mistake(url, allow_http=allow_http)):
        fields.add_to("url", *problem)
    return {
        "url": url,
        "connection": fields.name("connection") or None,
        **_timeouts(fields, mistakes),
        "max_in_flight": fields.whole("max_in_flight", 32, 1, 10_000),
        "allow_http": allow_http,
    }


def _timeouts(fields: Fields, mistakes: list[Mistake]) -> dict[str, Any]:
    node = fields.get("timeout")
    if node is None or not isinstance(node.value, dict):
        return {"timeout_seconds": fields.duration("timeout", 10.0, 1.0, 30.0)}
    fields.refuse_empty("timeout", "Write total, connect or both, or remove it")
    both = Fields(node, mistakes, "a timeout")
    both.close()
    total = both.duration("total", 10.0, 1.0, 30.0)
    connect = both.duration("connect", 5.0, 0.1, 30.0)
    if both.has("connect") and connect > total:
        message = f"connecting is a part of the attempt, and {write_duration(connect)} is more than the total"
        both.add_to("connect", message, f"Write connect: {write_duration(total)} or less")
    return {"timeout_seconds": total, "connect_seconds": connect}


def _file_fields(fields: Fields, *, required: bool) -> dict[str, Any]:
    path = fields.text("path", required=required)
    if path and (problem := path_mistake(path)):
        fields.add_to("path", *problem)
    return {"path": path}


def _transform(node: Node | None, mistakes: list[Mistake]) -> Transform:
    if node is None:
        return Transform()
    definition = node.to_json()
    found = [located(error, node) for error in transform_mistakes(definition)]
    mistakes.extend(mistake for mistake in found if mistake is not None)
    if found or node.is_spoilt_within():
        return Transform()
    # missing: null is the word null to a reader, although YAML reads it as nothing
    return Transform(**{name: value for name, value in definition.items() if name == "value" or value is not None})


def _retry(node: Node | None, mistakes: list[Mistake]) -> RetryPolicy:
    if node is None:
        return RetryPolicy()
    fields = Fields(node, mistakes, "a retry policy")
    fields.close()
    policy = fields.choice("policy", "own" if fields.has("policy") else POLICIES[0], (*POLICIES, *POLICY_ALIASES))
    policy = POLICY_ALIASES.get(policy, policy)
    age = fields.duration("maximum_event_age", DAY_SECONDS, 1.0, 30 * DAY_SECONDS)
    named = RetryPolicy.named(policy, age)
    if policy != "own":
        fields.refuse(OWN_ONLY, f"{{}} is fixed by the policy {policy}", "Remove it, or write policy: own")
        return named
    own = RetryPolicy(
        policy="own",
        attempts=fields.whole("attempts", named.attempts, 0, 1_000),
        initial_seconds=fields.duration("initial", named.initial_seconds, 0.0, DAY_SECONDS),
        multiplier=fields.real("multiplier", named.multiplier, 1.0, 100.0),
        maximum_seconds=fields.duration("maximum", named.maximum_seconds, 0.0, DAY_SECONDS),
        jitter=fields.real("jitter", named.jitter, 0.0, 1.0),
        maximum_event_age_seconds=age,
    )
    if own.maximum_seconds < own.initial_seconds:
        fields.add_to("maximum", "the maximum delay is below the initial one", "Write a maximum of at least initial")
    return own
