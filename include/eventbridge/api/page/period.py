"""Reads the period that a page shows from its URL, and keeps it in the links of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

from fastapi import Request

from eventbridge.errors import UserError
from eventbridge.runtime.time_range import time_range
from eventbridge.views.timeline import MAX_PERIOD, Period

#: The periods of the links at the top of a page, by their age.
AGES: Final = {"1h": "1 h", "24h": "24 h", "7d": "7 d"}
DEFAULT: Final = "24h"
_NAMES: Final = ("from", "to")


class PeriodLink(NamedTuple):
    """A link that shows the same page for another period; `is_shown` for the period that it shows now."""

    label: str
    href: str
    is_shown: bool


@dataclass(frozen=True)
class ShownPeriod:
    """The period of a page as its URL gives it: `since` and `until`, each a time, an age such as 24h, or empty."""

    since: str = ""
    until: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The parameters that keep the period in a link or a form; none for the default period."""
        if self.since in ("", DEFAULT) and not self.until:
            return {}
        return {name: value for name, value in zip(_NAMES, (self.since, self.until), strict=True) if value}

    @property
    def query(self) -> str:
        """The query string that keeps the period in a link; empty for the default period."""
        return f"?{urlencode(self.fields)}" if self.fields else ""

    @property
    def label(self) -> str:
        """The period in words."""
        if self.until:
            return f"{self.since or DEFAULT} to {self.until}"
        return f"last {AGES.get(self.since or DEFAULT, self.since)}"

    def times(self, now: datetime) -> Period:
        """Return the times of the period. Raises UserError if they are no times, or are too far apart."""
        since, until = time_range(now, self.since or DEFAULT, self.until or None)
        if until - since > MAX_PERIOD:
            raise UserError(f"a period has at most {MAX_PERIOD.days} days. Choose a later start")
        return Period(since, until)


def period_of(request: Request) -> ShownPeriod:
    """Return the period in a page's URL."""
    given = request.query_params
    return ShownPeriod(given.get("from", "").strip()[:64], given.get("to", "").strip()[:64])


def kept_parameters(request: Request) -> list[tuple[str, str]]:
    """Return the parameters of a page that are kept if another period is chosen."""
    left_out = (*_NAMES, "cursor", "done", "of")
    return [(name, value) for name, value in request.query_params.multi_items() if name not in left_out]


def period_links(request: Request) -> Iterator[PeriodLink]:
    """Yield links to the page of a request for each period; other parameters but a cursor are kept."""
    shown, others = period_of(request), kept_parameters(request)
    for age, label in AGES.items():
        query = urlencode([*others, *([("from", age)] if age != DEFAULT else [])])
        is_shown = not shown.until and (shown.since or DEFAULT) == age
        yield PeriodLink(label, f"?{query}", is_shown)
