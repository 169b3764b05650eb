"""Reads the time ranges that users give for a part of the archive, and refuses ranges whose data has been removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eventbridge.config.quantities import parse_duration
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime


def time_range(now: datetime, since: str | None, until: str | None) -> tuple[datetime, datetime]:
    """Return the start (included) and the end (excluded) of a time range that a user gave, both in UTC.

    Times are ISO 8601, in UTC unless they have an offset, or ages such as `2h`. An empty `until` means now. Raises
    UserError, with a remedy, if the range is invalid.
    """
    first, last = read_time("from", since, now), read_time("to", until, now) or now
    if first is None:
        raise UserError(
            "from is missing. Write 2026-11-22T08:00:00 (UTC unless it has an offset), or an age such as 2h"
        )
    if first >= last:
        raise UserError(f"from must be before to, not {first:%Y-%m-%dT%H:%M:%S} and {last:%Y-%m-%dT%H:%M:%S} (UTC)")
    return first, last


def read_time(name: str, text: str | None, now: datetime) -> datetime | None:
    """Return the time that `text` gives in ISO 8601 or as an age such as 2h, or None if `text` is empty.

    Raises UserError for any other text.
    """
    if not text or not text.strip():
        return None
    try:
        return now - timedelta(seconds=parse_duration(text.strip()))
    except (ValueError, OverflowError):  # it is not a duration, or it goes back beyond the year 1
        pass
    try:
        if not text.isprintable():  # Python takes any character, NUL too, for the T, and ignores NUL at the end
            raise ValueError(text)
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UserError(
            f"{name} {text!r} is not a time. "
            "Write 2026-11-22T08:00:00 (UTC unless it has an offset), or an age such as 2h."
        ) from None


def refuse_pruned(runtime: Runtime, bus: str, since: datetime, until: datetime, *, outcomes: bool = False) -> None:
    """Raise UserError if the archive of a bus in a time range has been removed or, with `outcomes`, the outcomes.

    `since` is included in the range, and `until` is not.
    """
    gone = runtime.ledger.archive.pruned_at(bus, since, until, "archive")
    if gone is not None:
        raise UserError(
            f"the archive of bus {bus!r} up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) is past its retention and was "
            "removed. Choose a later start. `retention` of the bus in its rule file sets how long it is kept"
        )
    oldest = runtime.ledger.now() - timedelta(seconds=runtime.settings.retention_manifests)
    if until <= oldest:
        raise UserError(
            f"batches planned before {oldest:%Y-%m-%dT%H:%M:%S} (UTC) are past their retention and were removed. "
            "`retention` of the bus in its rule file sets how long its archive is kept"
        )
    gone = runtime.ledger.archive.pruned_at(bus, since, until, "all") if outcomes else None
    if gone is not None:
        raise UserError(
            f"the outcomes of deliveries up to {gone:%Y-%m-%dT%H:%M:%S} (UTC) are past their retention, "
            "EVENTBRIDGE_RETENTION_DELIVERIES. Choose a later start, or do not filter by SQL "
            "or by outcome"
        )


def day_of(at: datetime) -> datetime:
    """Return the start of a time's day in UTC."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
