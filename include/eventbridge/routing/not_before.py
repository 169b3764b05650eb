"""The earliest time of a delivery, by `not_before` and `deliver_between` of its target; evaluated by route.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from eventbridge.config.quantities import parse_duration
from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue
from eventbridge.policy.delivery_times import next_opening
from eventbridge.rules import Target
from eventbridge.rules.model import DeliverBetween
from eventbridge.transform.jsonpath import MISSING, Path, parse_path

#: The maximum distance of a time in an event from now.
_FURTHEST: Final = timedelta(days=366)
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True)
class WaitingTimes:
    """The waiting times of a target: a time in the event, seconds after its arrival, a delivery window."""

    path: Path | None
    seconds: float
    window: DeliverBetween | None

    @classmethod
    def of(cls, target: Target) -> WaitingTimes | None:
        """Return the waiting times of a target, None if its deliveries never wait."""
        asked, window = target.not_before, target.deliver_between
        if asked is None and window is None:
            return None
        if asked is not None and asked.startswith("$"):
            return cls(parse_path(asked), 0.0, window)
        return cls(None, parse_duration(asked) if asked else 0.0, window)

    def not_before(self, arrived_at: datetime, document: Callable[[], JsonValue]) -> datetime | None:
        """Return the earliest time of a delivery, in whole seconds; None: on arrival.

        Depends on nothing but the event and the rule, so that every attempt of a slice gives the same result;
        `document` is asked for only if a path leads into it. Raises TransformFailed if the event has something else
        than a time there.
        """
        first = arrived_at + timedelta(seconds=self.seconds)
        if self.path is not None:
            first = max(first, _time_in(self.path, document(), arrived_at) or first)
        if first > arrived_at and first.microsecond:
            first = first.replace(microsecond=0) + timedelta(seconds=1)
        if self.window is not None:
            first = next_opening(self.window, first)
        return first if first > arrived_at else None


def _time_in(path: Path, document: JsonValue, arrived_at: datetime) -> datetime | None:
    value = path.find(document)
    if value is MISSING or value is None:
        return None
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise TransformFailed(f"not_before: {path.text} is not a time as RFC 3339 has it, such as 2026-12-24T18:00:00Z")
    try:
        found = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TransformFailed(f"not_before: {path.text} is {value}, which is not a valid time") from error
    if found - arrived_at > _FURTHEST:
        raise TransformFailed(f"not_before: {path.text} is {value}, more than {_FURTHEST.days} days ahead")
    return found
