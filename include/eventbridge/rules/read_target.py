"""Reads one target of a rule: its type, transform, retry policy, and when deliveries may be sent."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Collection
from contextlib import suppress
from datetime import date
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from eventbridge.config.quantities import parse_duration
from eventbridge.errors import RuleError, TransformError, TypeUnusable
from eventbridge.rules.fields import Fields
from eventbridge.rules.frozen import plain
from eventbridge.rules.model import (
    DAY_SECONDS,
    PENDING_MAX,
    WEEKDAYS,
    WHOLE_DAY,
    DeliverBetween,
    DeliverWithin,
    RetryPolicy,
    Target,
    Transform,
    queue_of,
)
from eventbridge.rules.node import Node, located
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, Registry, SourceType, TargetType, fields_of
from eventbridge.rules.vocabulary import (
    CUSTOM_ONLY,
    ERRORS_TOLERANCE,
    FIELDS,
    NOT_FOR_QUEUES,
    NOT_FOR_SHADOWS,
    POLICIES,
    POLICY_ALIASES,
    TARGET_TYPES_LATER,
)
from eventbridge.similar_names import nearest
from eventbridge.transform import order_path_problem, transform_errors
from eventbridge.transform.jsonpath import parse_path

Type = TypeVar("Type", TargetType, SourceType)
Model = TypeVar("Model", bound=BaseModel)
_HOURS = re.compile(r"(([01]\d|2[0-3]):[0-5]\d) ?- ?(([01]\d|2[0-3]):[0-5]\d|24:00)", re.ASCII)
_LONGEST_SECONDS = 30 * DAY_SECONDS
_MAX_DATES = 400


def read_target(name: str, node: Node, errors: list[RuleError]) -> Target:
    """Return the target that a mapping describes; a wrong field adds an error to `errors` and gets its default."""
    fields = Fields(node, errors, "a target")
    kind = read_type(fields, TARGET_TYPES, TARGET_TYPES_LATER)
    transform = _transform(fields.get("transform"), errors)
    if transform.form not in ("ORIGINAL", "FIELDS"):
        message = f"{{}} applies only to the forms ORIGINAL and FIELDS, but the form is {transform.form}"
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
        message = (
            "{} does not apply to a shadow, which is tried once, immediately, and whose failures have no consequences"
        )
        fields.refuse(NOT_FOR_SHADOWS, message, "Remove it, or shadow_of")
    return _build_target(fields, kind, transform, values)


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
    # content_mode is data, because the dead letter itself is sent, not an event
    values = {"name": queue_of(target), "content_mode": "data", "retry": _retry(fields.get("retry"), errors)}
    return _build_target(fields, kind, None, values)


def _build_target(
    fields: Fields, kind: TargetType | None, transform: Transform | None, values: dict[str, Any]
) -> Target:
    """Return the target with the fields of its type, and record an error for each unknown field."""
    likely = kind or likely_type(fields, TARGET_TYPES)
    fields.complete = kind is not None
    own = [word for word in likely.own_words if transform is not None or word not in NOT_FOR_QUEUES]
    close_fields(fields, TARGET_TYPES, kind, likely, own, "target")
    if likely.read is not None:
        return likely.fields(type=likely.name, **(likely.read(fields, transform) | values))
    # if validation failed, an error is recorded and the result is never used
    return read_by_model(fields, likely.fields, own, {"type": likely.name, **values}) or Target(type="", **values)


def _transform(node: Node | None, errors: list[RuleError]) -> Transform:
    if node is None:
        return Transform()
    definition = node.to_json()
    found = [located(error, node) for error in transform_errors(definition)]
    errors.extend(error for error in found if error is not None)
    if found or node.is_spoilt_within():
        return Transform()
    # YAML reads `missing: null` as no value, but users mean the word null, which is the default
    return Transform(**{name: value for name, value in definition.items() if name == "value" or value is not None})


def _retry(node: Node | None, errors: list[RuleError]) -> RetryPolicy:
    if node is None:
        return RetryPolicy()
    fields = Fields(node, errors, "a retry policy")
    fields.close()
    policy = fields.choice("policy", "custom" if fields.has("policy") else POLICIES[0], (*POLICIES, *POLICY_ALIASES))
    policy = POLICY_ALIASES.get(policy, policy)
    age = fields.duration("maximum_event_age", DAY_SECONDS, 1.0, 30 * DAY_SECONDS)
    named = RetryPolicy.from_name(policy, age)
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


def read_type(fields: Fields, types: Registry[Type], later: tuple[str, ...]) -> Type | None:
    """Return the type that the `type` field names; if it cannot be used, record an error and return None."""
    node = fields.get("type")
    try:
        found = None if node is None else types.find(node.value)
    except TypeUnusable as error:
        fields.add_to("type", error.what, error.remedy)
        return None
    if found is None:
        fields.choice("type", None, types.names(), later, required=True)
    return found


def likely_type(fields: Fields, types: Registry[Type]) -> Type:
    """Return the built-in type with which the given fields have the most in common.

    It allows errors in these fields to be reported even if `type` is missing or wrong."""
    built_in = [types.get(name) for name in types.built_in]
    return max(built_in, key=lambda each: len(set(each.own_words) & set(fields.given_names())))


def close_fields(
    fields: Fields, types: Registry[Type], kind: Type | None, likely: Type, own: Collection[str], noun: str
) -> None:
    """Record an error for each field that the type does not have; `own` are the fields of the type.

    `noun` is "target" or "source"."""
    foreign: list[str] = [
        word for word in fields.given_names() if kind and word not in own and word in fields_of(fields.what)
    ]
    message = f"{_article(likely.name)} {likely.name} {noun} has no {{}}"
    fields.refuse([word for word in foreign if word not in FIELDS[fields.what]], message, "Remove it")
    # if the type is unknown, a field of any type is accepted
    fields.close(own, [*foreign, *(() if kind else _words_of_all(types))])


def _words_of_all(types: Registry[Type]) -> set[str]:
    """Return the field names of all types whose packages are usable."""
    words: set[str] = set()
    for name in types.names():
        with suppress(TypeUnusable):
            words |= set(types.get(name).own_words)
    return words


def read_by_model(fields: Fields, model: type[Model], own: list[str], values: dict[str, Any]) -> Model | None:
    """Return the model built from `values` and the `own` fields that are given.

    If validation fails, record each of its errors at the value in question and return None.
    """
    nodes = {name: node for name in own if (node := fields.get(name)) is not None}
    try:
        return model(**values, **{name: plain(node.to_json()) for name, node in nodes.items()})
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            _record_validation_error(
                fields, model, nodes, each["type"], [str(step) for step in each["loc"]], each["msg"]
            )
    except Exception as error:  # of a validator of a plug-in
        plug_in = (TARGET_TYPES if issubclass(model, Target) else SOURCE_TYPES).plug_in(values["type"])
        if plug_in is None:
            raise
        fields.add(fields.node, str(plug_in.raised(error)), "Correct the fields, or update or remove the package")
    return None


def _record_validation_error(
    fields: Fields, model: type[BaseModel], nodes: dict[str, Node], kind: str, steps: list[str], message: str
) -> None:
    name = steps[0] if steps else ""
    if kind == "missing" and len(steps) == 1:
        fields.get(name, required=not fields.has(name))  # a field without a value already has an error
        return
    text = message.removeprefix("Value error, ")
    text = text[:1].lower() + text[1:].removesuffix(".")
    described = model.model_fields[name].description if name in model.model_fields else None
    remedy = f"Expected: {described}" if described else "Correct it"
    if name in nodes:
        fields.add(_deepest_node(nodes[name], steps[1:]), f"{name}: {text}", remedy)
    else:
        fields.add(fields.node, text, remedy)


def _deepest_node(node: Node, steps: list[str]) -> Node:
    for step in steps:
        children = node.value
        if isinstance(children, dict) and step in children:
            node = children[step]
        elif isinstance(children, list) and step.isdigit() and int(step) < len(children):
            node = children[int(step)]
    return node


def _article(word: str) -> str:
    """Return the indefinite article for a word; `http` is pronounced letter by letter."""
    return "an" if word[:1].lower() in "aeio" or word.startswith("http") else "a"


def read_waiting(fields: Fields, errors: list[RuleError]) -> dict[str, Any]:
    """Return the values of the fields that define when deliveries may be sent."""
    return {
        "not_before": _not_before(fields),
        "deliver_between": _deliver_between(fields.get("deliver_between"), errors),
        "deliver_within": _deliver_within(fields),
    }


def _deliver_within(fields: Fields) -> DeliverWithin | None:
    seconds: float | None = fields.duration("deliver_within", None, 1.0, _LONGEST_SECONDS)
    tolerance = fields.get("errors_tolerance")
    if seconds is not None and tolerance is not None and tolerance.value == "none":
        message = "errors_tolerance: none dead-letters no delivery, but deliver_within dead-letters late ones"
        fields.add_to("deliver_within", message, "Remove deliver_within, or write errors_tolerance: all")
        return None
    return None if seconds is None else DeliverWithin(seconds=seconds)


def _not_before(fields: Fields) -> str | None:
    text = fields.text("not_before")
    if not text:
        return None
    if not text.startswith("$"):
        try:
            seconds = parse_duration(text)
        except ValueError:
            seconds = 0.0
        if not 1.0 <= seconds <= _LONGEST_SECONDS:
            message = (
                f"not_before must be a path to a time in the event or a duration from 1s to 30d, not {text[:60]!r}"
            )
            fields.add_to("not_before", message, "Write a path or a duration, such as $.data.send_at or 15m")
        return text
    try:
        parse_path(text)
    except TransformError as error:
        fields.add_to("not_before", error.message, error.remedy.rstrip("."))
    return text


def _deliver_between(node: Node | None, errors: list[RuleError]) -> DeliverBetween | None:
    if node is None:
        return None
    fields = Fields(node, errors, "a delivery window")
    fields.close()
    return DeliverBetween(
        hours=_hours(fields),
        weekdays=_weekdays(fields),
        time_zone=_time_zone(fields),
        blackout_dates=_blackout_dates(fields),
    )


def _hours(fields: Fields) -> str:
    text = fields.text("hours", WHOLE_DAY)
    found = _HOURS.fullmatch(text)
    if found is not None and found[1] != found[3]:
        return f"{found[1]}-{found[3]}"
    if text and found is None:
        fields.add_to(
            "hours",
            f"{text[:60]!r} is not a range of hours",
            'Write "HH:MM-HH:MM" with hours from 00 to 24, such as 08:00-18:00',
        )
    elif text:
        fields.add_to(
            "hours",
            f"{text!r} begins and ends at the same time",
            "Write 00:00-24:00, or remove hours, for the whole day",
        )
    return WHOLE_DAY


def _weekdays(fields: Fields) -> tuple[str, ...]:
    words = fields.names("weekdays", WEEKDAYS)
    for word in words:
        if word not in WEEKDAYS:
            near = nearest(word[:3], WEEKDAYS)
            fields.add_to("weekdays", f"unknown weekday {word!r}", near or f"Weekdays are {', '.join(WEEKDAYS)}")
    return tuple(day for day in WEEKDAYS if day in words) or WEEKDAYS


def _time_zone(fields: Fields) -> str:
    name = fields.text("time_zone", "UTC", required=True)
    if name in time_zones():
        return name
    near = nearest(name, time_zones())
    fields.add_to(
        "time_zone", f"{name[:60]!r} is not a time zone", near or "Write an IANA name, such as Europe/Berlin or UTC"
    )
    return "UTC"


def _blackout_dates(fields: Fields) -> tuple[str, ...]:
    texts = fields.names("blackout_dates", ())
    for text in texts:
        try:
            right = date.fromisoformat(text).isoformat() == text
        except ValueError:
            right = False
        if not right:
            fields.add_to("blackout_dates", f"{text!r} is not a date", "Write dates as YYYY-MM-DD")
            return ()
    if len(texts) > _MAX_DATES:
        fields.add_to("blackout_dates", f"{len(texts):,} dates are too many", f"Write at most {_MAX_DATES}")
    return texts[:_MAX_DATES]


def read_pending_max(fields: Fields, default: Any, errors: list[RuleError]) -> Any:
    """Return the maximum number of pending deliveries, or `default` if it is not given."""
    if (node := fields.get("pending")) is None:
        return default
    fields.refuse_empty("pending", f"Write pending: {{max: {PENDING_MAX}}}, or remove it")
    own = Fields(node, errors, "pending deliveries")
    most = own.whole("max", default, 1, 1_000_000_000)
    own.close()
    return most


@cache
def time_zones() -> frozenset[str]:
    """Return the names of this system's time zones; they are cached, because reading them takes 4 ms."""
    return frozenset(zoneinfo.available_timezones())


def todays_time_zones() -> frozenset[str]:
    """Read this system's time zones again, and return their names."""
    time_zones.cache_clear()
    return time_zones()
