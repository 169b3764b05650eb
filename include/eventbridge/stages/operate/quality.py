"""Quality checks as operators ask for them: check an hour, list the hours that were checked, show one."""

from __future__ import annotations

from datetime import UTC, datetime

from eventbridge.errors import NotFoundError, UserError
from eventbridge.model.quality import QualityCheck, QualityRecord
from eventbridge.stages.quality.hour import HOUR, hour_of
from eventbridge.stages.quality.record import read_record
from eventbridge.stages.runtime.runtime import Runtime


def check_hour(work: Runtime, text: str | None = None) -> QualityRecord:
    """Check an hour, None: the last one that is over; what was found before is returned again.

    Raises UserError for a text that is not a time, does not begin an hour, or of an hour that is not over.
    """
    from eventbridge.stages.quality.check import check_quality  # imports DuckDB, which listing does without

    return check_quality(work, None if text is None else _time(text))


def checked_hours(work: Runtime, limit: int = 24) -> list[QualityCheck]:
    """Return the latest hours that were checked, the latest first."""
    return work.ledger.quality_checks(limit)


def found_in_hour(work: Runtime, text: str | None = None) -> QualityRecord:
    """Return what the check of an hour found, None: of the latest one that was checked; raises NotFoundError."""
    if text is None:
        latest = next(iter(work.ledger.quality_checks(1)), None)
        if latest is None:
            raise NotFoundError("no hour was checked yet: `eventbridge quality check` checks one.")
        return read_record(work, latest)
    hour = hour_of(_time(text))
    check = work.ledger.quality_checks_of([hour]).get(hour)
    if check is None:
        raise NotFoundError(
            f"the hour from {hour.isoformat()} to {(hour + HOUR).isoformat()} was not checked. "
            f"`eventbridge quality check --hour {hour:%Y-%m-%dT%H:00}` checks it."
        )
    return read_record(work, check)


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        _ = at + HOUR  # the end of its hour is a time too
    except (ValueError, OverflowError):
        raise UserError(f"{text!r} is not a time. Write one such as 2026-03-01T12:00, in UTC.") from None
    return at
