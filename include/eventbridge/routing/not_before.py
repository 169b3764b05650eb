"""When a delivery could first be sent: `not_before` and `deliver_between` of its target, looked at by route.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from eventbridge.config.quantities import parse_duration
from eventbridge.decision.delivery_window import next_opening
from eventbridge.errors import TransformFailed
from eventbridge.event.json_document import JsonValue
from eventbridge.rule import Target
from eventbridge.rule.window import DeliverBetween
from eventbridge.transform.jsonpath import MISSING, Path, parse_path

#: How far ahead a time in an event may lie.
_FURTHEST: Final = timedelta(days=366)
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True)
class WaitingTimes:
    """What deliveries of one target wait for: a time in the event, seconds after its arrival, hours of the day."""

    path: Path | None
    seconds: float
    window: DeliverBetween | None

    @classmethod
    def of(cls, target: Target) -> WaitingTimes | None:
        """Return what deliveries of a target wait for, None if they never do."""
        asked, window = target.not_before, target.deliver_between
        if asked is None and window is None:
            return None
        if asked is not None and asked.startswith("$"):
            return cls(parse_path(asked), 0.0, window)
        return cls(None, parse_duration(asked) if asked else 0.0, window)

    def not_before(self, arrived_at: datetime, document: Callable[[], JsonValue]) -> datetime | None:
        """Return when a delivery could first be sent, on a whole second; None: on arrival.

        Depends on nothing but the event and the rule, so that every try of a slice says the same; `document` is asked
        for only if a path leads into it. Raises TransformFailed where the event holds something else than a time.
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
        raise TransformFailed(f"not_before: {path.text} is {value}, and there is no such time") from error
    if found - arrived_at > _FURTHEST:
        raise TransformFailed(f"not_before: {path.text} is {value}, more than {_FURTHEST.days} days ahead")
    return found
