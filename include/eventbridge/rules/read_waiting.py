"""Reads the waiting fields of a target: `not_before`, `deliver_between` and `deliver_within`."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from eventbridge.config.quantities import parse_duration
from eventbridge.errors import RuleError, TransformError
from eventbridge.rules.fields import Fields, nearest
from eventbridge.rules.model import DAY_SECONDS, PENDING_MAX
from eventbridge.rules.node import Node
from eventbridge.rules.time_zones import time_zones
from eventbridge.rules.window import WEEKDAYS, WHOLE_DAY, DeliverBetween, DeliverWithin
from eventbridge.transform.jsonpath import parse_path

_HOURS = re.compile(r"(([01]\d|2[0-3]):[0-5]\d) ?- ?(([01]\d|2[0-3]):[0-5]\d|24:00)", re.ASCII)
_LONGEST_SECONDS = 30 * DAY_SECONDS
_MOST_DATES = 400


def read_waiting(fields: Fields, errors: list[RuleError]) -> dict[str, Any]:
    """Return the fields that say when deliveries may be sent."""
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
            message = f"not_before is a path to a time in the event, or a duration from 1s to 30d, not {text[:60]!r}"
            fields.add_to("not_before", message, "Write it such as $.data.send_at or 15m")
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
            "hours", f"{text!r} begin and end at the same time", "Write 00:00-24:00, or remove hours, for the whole day"
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
    if len(texts) > _MOST_DATES:
        fields.add_to("blackout_dates", f"{len(texts):,} dates are too many", f"Write at most {_MOST_DATES}")
    return texts[:_MOST_DATES]


def read_pending_max(fields: Fields, default: Any, errors: list[RuleError]) -> Any:
    """Return the maximum of pending deliveries, `default` if not given."""
    if (node := fields.get("pending")) is None:
        return default
    fields.refuse_empty("pending", f"Write pending: {{max: {PENDING_MAX}}}, or remove it")
    own = Fields(node, errors, "pending deliveries")
    most = own.whole("max", default, 1, 1_000_000_000)
    own.close()
    return most
