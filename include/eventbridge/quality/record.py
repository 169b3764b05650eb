"""The records of quality checks in the store, the history of volumes from earlier records, and the hours."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import msgspec

from eventbridge.errors import StoreError, StoreFileDamaged
from eventbridge.model.quality import QualityCheck, QualityRecord, Subject
from eventbridge.policy.quality import VOLUMES, History
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.layout import FORMAT, require_known_format

log = logging.getLogger(__name__)
HOUR = timedelta(hours=1)


def write_record(runtime: Runtime, path: str, record: QualityRecord) -> None:
    """Write the record of a check."""
    runtime.store.put(path, msgspec.json.format(msgspec.json.encode({"format": FORMAT} | msgspec.to_builtins(record))))


def read_record(runtime: Runtime, check: QualityCheck) -> QualityRecord:
    """Return the result of a check; raises StoreError if its record is lost or damaged."""
    try:
        said = json.loads(runtime.store.get(check.record))
        require_known_format(check.record, said.pop("format", None))
        return msgspec.convert(said, QualityRecord)
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreFileDamaged(f"{check.record!r} is not the record of a quality check: {error}") from error


def volumes_before(runtime: Runtime, hour: datetime, days: int) -> History:
    """Return the volumes of the same hour on the days before; lost records are skipped."""
    hours = [hour - timedelta(days=day) for day in range(1, days + 1)]
    found: dict[tuple[Subject, str], list[float]] = defaultdict(list)
    for _, check in sorted(runtime.ledger.quality_checks_of(hours).items()):
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
