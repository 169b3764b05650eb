"""The hours of quality checks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour, in UTC, of a time."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
