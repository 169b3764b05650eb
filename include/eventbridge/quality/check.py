"""Checks an hour once: tests its measures, stores a page and a record, publishes an event, and puts rules on hold."""

from __future__ import annotations

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from eventbridge.errors import StoreFileDamaged, UserError
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.quality import Measure, QualityCheck, QualityRecord
from eventbridge.policy.operational_event import quality_check_event
from eventbridge.policy.quality import (
    BusCounts,
    FieldCounts,
    QualityLimits,
    TargetCounts,
    failed_rules,
    failure_message,
    measures_of,
)
from eventbridge.quality.record import HOUR, hour_of, read_record, read_time, volumes_before, write_record
from eventbridge.quality.suite import run_suite
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.model import FieldExpectation
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.columns import codes_of, flag_column, numbers_of, valid_of
from eventbridge.store.layout import require_known_format
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.queries import count_fields
from eventbridge.transform.jsonpath import parse_path

log = logging.getLogger(__name__)

#: A volume is compared only if the same hour was checked on at least this many days before.
VOLUME_DAYS = 3
Fields = dict[tuple[str, str], tuple[FieldExpectation, FieldCounts]]


@instrumented("eventbridge_check_quality", of="")
def check_quality(runtime: Runtime, hour: datetime | None = None) -> QualityRecord:
    """Check the hour that begins at `hour`, or the last complete hour if it is None, and return the result.

    An hour is checked once: later calls return the recorded result. The hour's batches are those planned in it, by the
    ledger's clock. Raises UserError for an hour that is not over, or a time that does not begin one; StoreError for a
    lost or damaged file of a batch, in which case nothing is recorded.
    """
    now = runtime.ledger.now()
    hour = hour_of(now) - HOUR if hour is None else _hour(hour, now)
    if (known := runtime.ledger.quality.checks_of_hours([hour])) == {}:
        _check(runtime, hour, now)
        known = runtime.ledger.quality.checks_of_hours([hour])
    publish_operational_events(runtime)
    return read_record(runtime, known[hour])


def check_hour(runtime: Runtime, text: str | None = None) -> QualityRecord:
    """Check the hour that begins at the time in `text`, for the command line; see `check_quality`.

    Also raises UserError if `text` is not a time.
    """
    return check_quality(runtime, None if text is None else read_time(text))


def _hour(at: datetime, now: datetime) -> datetime:
    hour = hour_of(at)
    if at != hour:
        raise UserError(f"{at.isoformat()} does not begin an hour. Write {hour.isoformat()} for the hour it is in.")
    if hour + HOUR > now:
        raise UserError(f"the hour from {hour.isoformat()} is not over yet: check it after {hour + HOUR:%H:%M} UTC.")
    return hour


def _check(runtime: Runtime, hour: datetime, now: datetime) -> None:
    batches = runtime.ledger.batches.list_planned_between(hour, hour + HOUR)
    committed = [batch for batch in batches if batch.state == "committed"]
    rules = runtime.rule_set()
    counts = _count_hour(runtime, committed)
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
    failed_expectations = {rule: detail for rule, detail in failed_rules(failures).items() if rule in rules.rules}
    if runtime.ledger.quality.record_check(check, failed_expectations, quality_check_event(record)):
        _log_failures(failures, failed_expectations)


def _measures(runtime: Runtime, rules: RuleSet, hour: datetime, counts: _HourCounts) -> list[Measure]:
    """Return the measures of an hour, including buses without events, and targets that only earlier hours have."""
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
        counts.buses, counts.targets, _count_expected_fields(runtime, rules, counts.routed), history, limits
    )


def _log_failures(failures: list[Measure], failed_expectations: dict[str, str]) -> None:
    for each in failures:
        log.error("ALARM quality: %s", failure_message(each))
    for rule, detail in failed_expectations.items():
        log.error("ALARM the rule %s is on hold until you run `eventbridge rules release`: %s", rule, detail)


@dataclass
class _HourCounts:
    """An hour's counts by bus and by (rule, target), and the manifests of batches that routed new events."""

    buses: dict[str, BusCounts] = field(default_factory=lambda: defaultdict(BusCounts))
    targets: dict[tuple[str, str], TargetCounts] = field(default_factory=lambda: defaultdict(TargetCounts))
    routed: list[Mapping[str, Any]] = field(default_factory=list)


def _count_hour(runtime: Runtime, batches: Iterable[Batch]) -> _HourCounts:
    """Return the counts of committed batches, except replays and redrives, whose events belong to other hours.

    Raises StoreError for a lost or damaged file.
    """
    counts = _HourCounts()
    for batch in batches:
        if batch.kind in ("normal", "retry"):
            _count(runtime, counts, batch, _manifest(runtime, batch))
    return counts


def _manifest(runtime: Runtime, batch: Batch) -> dict[str, Any]:
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        found = json.loads(runtime.store.get(path))
    except ValueError as error:
        raise StoreFileDamaged(f"{path!r} is not JSON. Run `eventbridge batches repair {batch.batch_id}`") from error
    require_known_format(path, found.get("format"))
    return dict(found)


def _count(runtime: Runtime, counts: _HourCounts, batch: Batch, manifest: Mapping[str, Any]) -> None:
    if batch.kind == "normal":
        bus, numbers = counts.buses[batch.bus], manifest["counts"]
        bus.events += numbers["read"] - numbers.get("tombstone", 0)
        bus.malformed += numbers["malformed"]
        bus.duplicate += numbers["duplicate"]
    new = batch.kind == "normal" or "taken_deferred_matches" in manifest
    for name, fingerprints in manifest["fingerprints"].items():
        for key, (count, *_) in fingerprints.items():
            rule, _, target = key.partition("/")
            if name == "delivered":
                counts.targets[rule, target].delivered += count
            elif name == "matched" and new:
                counts.targets[rule, target].matched += count
            elif name == "pending" and new:
                counts.targets[rule, target].pending += count
    for path in manifest["files"]["dead_letter"]:
        _count_dead_letters(runtime, counts, path)
    if new:
        counts.routed.append(manifest)


def _count_dead_letters(runtime: Runtime, counts: _HourCounts, path: str) -> None:
    table = read_table(
        runtime.store, path, ["delivery_id", "rule", "target", "reason"], coded=["rule", "target", "reason"]
    )
    table = table.filter(flag_column(valid_of(table["delivery_id"])))
    (rule_of, rules), (target_of, targets), (reason_of, reasons) = (
        codes_of(table[name]) for name in ("rule", "target", "reason")
    )
    kinds, numbers = np.unique(np.stack([rule_of, target_of, reason_of]), axis=1, return_counts=True)
    for (rule, target, reason), count in zip(kinds.T.tolist(), numbers.tolist(), strict=True):
        dead = counts.targets[rules[rule], targets[target]].dead_letters
        dead[reasons[reason]] = dead.get(reasons[reason], 0) + count


def _count_expected_fields(runtime: Runtime, rules: RuleSet, routed: Iterable[Mapping[str, Any]]) -> Fields:
    """Return the current rules' field expectations by (rule, path), with counts over events of `routed` manifests.

    It holds the matched events of one archive file in memory at a time. Raises StoreError for a lost or damaged file.
    """
    expecting = [rule for rule in rules.rules.values() if rule.expect is not None and rule.expect.fields]
    found: Fields = {
        (rule.name, path): (expected, FieldCounts()) for rule in expecting for path, expected in _fields(rule).items()
    }
    for manifest in routed:
        matched = {key.partition("/")[0] for key in manifest["fingerprints"]["matched"]}
        for rule in expecting:
            if rule.name in matched:
                _count_values(runtime, rule, manifest, found)
    return found


def _fields(rule: Rule) -> Mapping[str, FieldExpectation]:
    return rule.expect.fields if rule.expect is not None else {}


def _count_values(runtime: Runtime, rule: Rule, manifest: Mapping[str, Any], value_counts: Fields) -> None:
    paths = {path: parse_path(path).steps for path in _fields(rule)}
    for file, rows in _read_matched_events(runtime, rule.name, manifest["files"]["delivery"]):
        events = read_rows(runtime.store, file, rows, ["body"])
        for path, counts in count_fields(events, paths).items():
            value_counts[rule.name, path][1].add(counts)


def _read_matched_events(runtime: Runtime, rule: str, files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a rule's matched events, each once: archive file and row set."""
    rows_of: dict[str, set[int]] = {}
    for path in files:
        table = read_table(runtime.store, path, ["rule", "event_file", "event_row"], coded=["rule", "event_file"])
        rule_of, rules = codes_of(table["rule"])
        if rule not in rules:
            continue
        chosen = rule_of == rules.index(rule)
        file_of, names = codes_of(table["event_file"])
        rows = numbers_of(table["event_row"])
        for number in np.unique(file_of[chosen]).tolist():
            rows_of.setdefault(names[number], set()).update(rows[chosen & (file_of == number)].tolist())
    for file, event_rows in sorted(rows_of.items()):
        yield file, row_vectors.encode(np.array(sorted(event_rows), dtype=np.int64))
