"""Checks an hour once: measures, bounds, Data Docs page, record, event, and rules that are put on hold."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime

from eventbridge.errors import UserError
from eventbridge.model.quality import Measure, QualityCheck, QualityRecord
from eventbridge.policy.operational_event import of_quality_check
from eventbridge.policy.quality import QualityLimits, failed_rules, failure_message, measures_of
from eventbridge.quality.counts import HourCounts, count_hour
from eventbridge.quality.fields import count_expected_fields
from eventbridge.quality.hour import HOUR, hour_of
from eventbridge.quality.record import read_record, volumes_before, write_record
from eventbridge.quality.suite import run_suite
from eventbridge.rules import RuleSet
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

log = logging.getLogger(__name__)

#: A volume is compared only if the same hour was checked on at least so many days before.
VOLUME_DAYS = 3


@instrumented("eventbridge_check_quality", of="")
def check_quality(runtime: Runtime, hour: datetime | None = None) -> QualityRecord:
    """Check the hour that begins at `hour` (None: the last complete one), and return the result.

    An hour is checked once: later calls return the recorded result. The hour's batches are those planned in it, by the
    ledger's clock. Raises UserError for an hour that is not over, or a time that does not begin one; StoreError for a
    lost or damaged file of a batch: nothing is recorded then.
    """
    now = runtime.ledger.now()
    hour = hour_of(now) - HOUR if hour is None else _hour(hour, now)
    if (known := runtime.ledger.quality_checks_of([hour])) == {}:
        _check(runtime, hour, now)
        known = runtime.ledger.quality_checks_of([hour])
    publish_operational_events(runtime)
    return read_record(runtime, known[hour])


def _hour(at: datetime, now: datetime) -> datetime:
    hour = hour_of(at)
    if at != hour:
        raise UserError(f"{at.isoformat()} does not begin an hour. Write {hour.isoformat()} for the hour it is in.")
    if hour + HOUR > now:
        raise UserError(f"the hour from {hour.isoformat()} on is not over yet: check it after {hour + HOUR:%H:%M} UTC.")
    return hour


def _check(runtime: Runtime, hour: datetime, now: datetime) -> None:
    batches = runtime.ledger.batches_between(hour, hour + HOUR)
    committed = [batch for batch in batches if batch.state == "committed"]
    rules = runtime.rule_set()
    counts = count_hour(runtime, committed)
    measures = _measures(runtime, rules, hour, counts)
    failures, page = run_suite(measures, f"hour {hour:%Y-%m-%d %H:00} UTC") if measures else ([], b"")
    check_id = uuid.uuid4().hex  # a concurrent check of the same hour writes its own files
    record = QualityRecord(
        hour=hour,
        checked_at=now,
        batches=len(committed),
        open_batches=len(batches) - len(committed),
        measures=tuple(measures),
        failures=tuple(failures),
        page=layout.quality(hour, check_id, "html") if page else "",
        dead_letters={f"{rule}/{target}": dict(each.dead_letters) for (rule, target), each in counts.targets.items()},
    )
    if page:
        runtime.store.put(record.page, page)
    path = layout.quality(hour, check_id, "json")
    write_record(runtime, path, record)
    check = QualityCheck(hour, now, len(measures), len(failures), path)
    held = {rule: detail for rule, detail in failed_rules(failures).items() if rule in rules.rules}
    if runtime.ledger.note_quality_check(check, held, of_quality_check(record)):
        _log_failures(failures, held)


def _measures(runtime: Runtime, rules: RuleSet, hour: datetime, counts: HourCounts) -> list[Measure]:
    """Return the measures of an hour, also of buses and targets without events in it that had some before."""
    settings = runtime.settings
    limits = QualityLimits(
        malformed_rate=settings.quality_malformed_rate,
        duplicate_rate=settings.quality_duplicate_rate,
        dead_letter_rate=settings.quality_dead_letter_rate,
        pending_rate=settings.quality_pending_rate,
        volume_tolerance=settings.quality_volume_tolerance,
        volume_days=VOLUME_DAYS,
    )
    history = volumes_before(runtime, hour, settings.quality_history_days)
    for bus in rules.runners().values():
        counts.buses[bus]  # a bus without any event has counts of 0
    for subject, _ in history:
        rule = rules.rules.get(subject.name)
        if subject.kind == "target" and rule is not None and rule.enabled and subject.part in rule.targets:
            counts.targets[subject.name, subject.part]
    return measures_of(
        counts.buses, counts.targets, count_expected_fields(runtime, rules, counts.routed), history, limits
    )


def _log_failures(failures: list[Measure], held: dict[str, str]) -> None:
    for each in failures:
        log.error("ALARM quality: %s", failure_message(each))
    for rule, detail in held.items():
        log.error("ALARM the rule %s is on hold until `eventbridge rules release` is called: %s", rule, detail)
