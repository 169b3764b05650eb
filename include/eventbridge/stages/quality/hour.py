"""The hours that are checked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)


def hour_of(at: datetime) -> datetime:
    """Return the beginning of the hour, in UTC, that a time is in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
