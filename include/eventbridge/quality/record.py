"""Writes, reads and lists the records of quality checks by hour, and returns the volumes of earlier hours."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import msgspec

from eventbridge.errors import NotFoundError, StoreError, StoreFileDamaged, UserError
from eventbridge.model.cursor import read_time_cursor, write_name_cursor
from eventbridge.model.quality import QualityCheck, QualityRecord, Subject
from eventbridge.policy.quality import VOLUMES, History
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.layout import FORMAT, require_known_format

log = logging.getLogger(__name__)
HOUR = timedelta(hours=1)

#: The maximum age of the volumes that an hour is compared with; see EVENTBRIDGE_QUALITY_HISTORY_DAYS.
_MAX_HISTORY = timedelta(days=90)


def write_record(runtime: Runtime, path: str, record: QualityRecord) -> None:
    """Write the record of a check."""
    runtime.store.put(path, msgspec.json.format(msgspec.json.encode({"format": FORMAT} | msgspec.to_builtins(record))))


def read_record(runtime: Runtime, check: QualityCheck) -> QualityRecord:
    """Return the result of a check. Raises StoreError if its record is lost or damaged."""
    try:
        document = json.loads(runtime.store.get(check.record))
        require_known_format(check.record, document.pop("format", None))
        return msgspec.convert(document, QualityRecord)
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreFileDamaged(f"{check.record!r} is not the record of a quality check: {error}") from error


def volumes_before(runtime: Runtime, hour: datetime, days: int) -> History:
    """Return the volumes of the same hour on the preceding days; lost records are skipped."""
    hours = [hour - timedelta(days=day) for day in range(1, days + 1)]
    found: dict[tuple[Subject, str], list[float]] = defaultdict(list)
    for _, check in sorted(runtime.ledger.quality.checks_of_hours(hours).items()):
        try:
            record = read_record(runtime, check)
        except StoreError as error:
            log.warning("the volumes of %s are not compared: %s", check.hour.isoformat(), error)
            continue
        for each in record.measures:
            if each.name in VOLUMES:
                found[each.subject, each.name].append(each.value)
    return found


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour, in UTC, of a time."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def list_checked_hours(runtime: Runtime, limit: int = 24) -> list[QualityCheck]:
    """Return the checked hours, latest first."""
    return runtime.ledger.quality.checks(limit)


def list_checked_hour_page(runtime: Runtime, limit: int, after: str | None) -> tuple[list[QualityCheck], str | None]:
    """Return the checked hours after a cursor, and the cursor of the next page, or None on the last page.

    Raises UserError for an invalid cursor.
    """
    before = read_time_cursor(after) if after else None
    found = runtime.ledger.quality.checks(limit + 1, before)
    following = write_name_cursor(found[limit - 1].hour.isoformat()) if len(found) > limit else None
    return found[:limit], following


def find_record(runtime: Runtime, text: str | None = None) -> QualityRecord:
    """Return the check of the hour that contains the given time, or the latest check. Raises NotFoundError if there is
    none."""
    if text is None:
        latest = next(iter(runtime.ledger.quality.checks(1)), None)
        if latest is None:
            raise NotFoundError("no hour has been checked yet. Run `eventbridge quality check`.")
        return read_record(runtime, latest)
    hour = hour_of(read_time(text))
    check = runtime.ledger.quality.checks_of_hours([hour]).get(hour)
    if check is None:
        raise NotFoundError(
            f"the hour from {hour.isoformat()} to {(hour + HOUR).isoformat()} was not checked. "
            f"Run `eventbridge quality check --hour {hour:%Y-%m-%dT%H:00}`."
        )
    return read_record(runtime, check)


def read_time(text: str) -> datetime:
    """Return the time that a string names, in UTC. Raises UserError for any other string."""
    try:
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        _ = at + HOUR, at - _MAX_HISTORY  # raises if the hour's end, or an hour it is compared with, is out of range
    except (ValueError, OverflowError):
        raise UserError(f"{text!r} is not a time. Write one such as 2026-03-01T12:00, in UTC.") from None
    return at
