"""Quality checks for operators: check an hour, list the checked hours, show one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eventbridge.errors import NotFoundError, UserError
from eventbridge.model.cursor import read_time_cursor, write_name_cursor
from eventbridge.model.quality import QualityCheck, QualityRecord
from eventbridge.quality.record import HOUR, hour_of, read_record
from eventbridge.runtime.runtime import Runtime

#: How far back the hours go whose volumes an hour is compared with: see QUALITY_HISTORY_DAYS.
_COMPARED = timedelta(days=90)


def check_hour(runtime: Runtime, text: str | None = None) -> QualityRecord:
    """Check an hour, None: the last complete one; a check that was made before is returned again.

    Raises UserError for a text that is not a time or does not begin an hour, and for an hour that is not over.
    """
    from eventbridge.quality.check import check_quality  # imports DuckDB, which listing does without

    return check_quality(runtime, None if text is None else _time(text))


def checked_hours(runtime: Runtime, limit: int = 24) -> list[QualityCheck]:
    """Return the checked hours, the latest first."""
    return runtime.ledger.quality_checks(limit)


def checked_hour_page(runtime: Runtime, limit: int, after: str | None) -> tuple[list[QualityCheck], str | None]:
    """Return the checked hours after a cursor, and the cursor of the next page, or None.

    Raises UserError for an invalid cursor.
    """
    before = read_time_cursor(after) if after else None
    found = runtime.ledger.quality_checks(limit + 1, before)
    following = write_name_cursor(found[limit - 1].hour.isoformat()) if len(found) > limit else None
    return found[:limit], following


def found_in_hour(runtime: Runtime, text: str | None = None) -> QualityRecord:
    """Return the result of the check of an hour, None: of the latest checked one; raises NotFoundError."""
    if text is None:
        latest = next(iter(runtime.ledger.quality_checks(1)), None)
        if latest is None:
            raise NotFoundError("no hour was checked yet: `eventbridge quality check` checks one.")
        return read_record(runtime, latest)
    hour = hour_of(_time(text))
    check = runtime.ledger.quality_checks_of([hour]).get(hour)
    if check is None:
        raise NotFoundError(
            f"the hour from {hour.isoformat()} to {(hour + HOUR).isoformat()} was not checked. "
            f"`eventbridge quality check --hour {hour:%Y-%m-%dT%H:00}` checks it."
        )
    return read_record(runtime, check)


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        _ = at + HOUR, at - _COMPARED  # raises if the hour's end, or an hour it is compared with, is out of range
    except (ValueError, OverflowError):
        raise UserError(f"{text!r} is not a time. Write one such as 2026-03-01T12:00, in UTC.") from None
    return at
