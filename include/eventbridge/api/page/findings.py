"""Collects what needs attention on the overview: the disk, rule files, runners, rules, targets, quality, schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import quote

from eventbridge.errors import StoreError
from eventbridge.model.quality import Measure, QualityCheck
from eventbridge.policy.quality import number_text
from eventbridge.quality.record import read_record
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import Status

#: The maximum number of unhealthy targets on the overview.
MAX_TARGETS: Final = 20
#: The maximum number of failed measures, and of types with lost fields.
_MAX_FAILURES: Final = 5
#: Lost fields are looked for in this many types, the first by name, because the overview is loaded often.
_MAX_TYPES: Final = 100
#: A lost field needs attention this long.
_DRIFT: Final = timedelta(days=7)
#: The disk needs attention below this multiple of the free space at which ingestion stops, and the store's quota above
#: this share of it.
_TIMES_FREE: Final = 2
_SHARE_USED: Final = 0.9
_MAINTAIN: Final = "eventbridge maintain"


class Finding(NamedTuple):
    """Something that needs attention: its kind and name, its state, since when and why.

    `path` is that of its page; `rule` and `target` are set if a button of the overview can change its state. `pending`
    is the number of its pending deliveries, or None if it has none of its own. `command` is the command that helps,
    for what no page and no button can change.
    """

    kind: str
    name: str
    path: str
    state: str
    since: datetime | None
    why: str
    rule: str = ""
    target: str = ""
    pending: int | None = None
    command: str = ""


def findings(found: Status) -> list[Finding]:
    """Return what needs attention of a status, the most urgent first."""
    pending: Counter[tuple[str, str]] = Counter()
    for row in found.pending:
        pending[row.rule, row.target] += row.count
    stop = found.ingestion_stop
    all_ = []
    if stop:
        no_batches = Finding(
            "Installation", "no new batches", "", "stopped", stop.since, stop.reason, command=_MAINTAIN
        )
        all_.append(no_batches)
    all_ += [
        Finding(
            *("Rule files", str(error), "", "error", None, "Batches use the previous rules"),
            command="eventbridge rules check",
        )
        for error in found.errors
    ]
    all_ += [Finding("Runner", each.runner, "", "stalled", None, each.why) for each in found.stalled]
    all_ += [
        Finding("Rule", each.rule, f"/rules/{each.rule}", "on hold", each.since, each.reason, each.rule)
        for each in found.rules_on_hold
    ]
    all_ += [
        Finding(
            "Target",
            f"{each.rule} / {each.target}",
            f"/targets/{each.rule}/{each.target}",
            each.state,
            each.since,
            each.reason,
            each.rule,
            each.target,
            pending[each.rule, each.target],
        )
        for each in found.targets[:MAX_TARGETS]
    ]
    all_ += [
        Finding("Owner", each.owner, "", "quota reached", None, "the owner's events are stored up to its quota")
        for each in found.owners
        if each.full
    ]
    return all_


def installation_findings(runtime: Runtime, found: Status) -> Iterator[Finding]:
    """Yield what needs attention of the disk, the last quality check and the schemas; they belong to no owner."""
    if found.ingestion_stop is None:
        yield from _disk(runtime, found)
    for check in runtime.ledger.quality.checks(1):
        if not check.passed:
            yield from _quality(runtime, check)
    yield from _drift(runtime, found.now)


def _disk(runtime: Runtime, found: Status) -> Iterator[Finding]:
    least = runtime.settings.disk_min_free_size
    try:
        free = runtime.store.free_bytes()
    except StoreError as error:
        yield Finding("Disk", "store", "", "error", None, f"its free space is unknown: {error}", command=_MAINTAIN)
        return
    if free is not None and free < _TIMES_FREE * least:
        why = f"{_gibibytes(free)} free; no batch is planned below {_gibibytes(least)}"
        yield Finding("Disk", "free space", "", "low", None, why, command=_MAINTAIN)
    store = found.store_quota
    if store is not None and store.used >= _SHARE_USED * store.quota:
        why = f"{_gibibytes(store.used)} stored; no batch is planned at {_gibibytes(store.quota)}"
        yield Finding("Disk", "quota of the store", "", "low", store.counted_at, why, command=_MAINTAIN)


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"


def _quality(runtime: Runtime, check: QualityCheck) -> Iterator[Finding]:
    command = f"eventbridge quality show {check.hour:%Y-%m-%dT%H:00Z}"
    what = f"{check.hour:%H}:00 UTC"
    try:
        failures = read_record(runtime, check).failures
    except StoreError:
        why = f"{check.failures} of {check.measures} measures failed; the record of the check cannot be read"
        yield Finding("Quality", what, "", "failed", check.hour, why, command=command)
        return
    for each in failures[:_MAX_FAILURES]:
        yield Finding("Quality", str(each.subject), _path(each), "failed", check.hour, _failure(each), command=command)
    if len(failures) > _MAX_FAILURES:
        why = f"{len(failures) - _MAX_FAILURES} more measures failed"
        yield Finding("Quality", what, "", "failed", check.hour, why, command=command)


def _path(measure: Measure) -> str:
    subject = measure.subject
    if subject.kind == "bus":
        return "/buses"
    return f"/targets/{subject.name}/{subject.part}" if subject.kind == "target" else f"/rules/{subject.name}"


def _failure(measure: Measure) -> str:
    ends = (("at least", measure.at_least), ("at most", measure.at_most))
    expected = " and ".join(f"{word} {number_text(end)}" for word, end in ends if end is not None)
    return f"{measure.name} was {number_text(measure.value)}, expected {expected or 'a value'}"


def _drift(runtime: Runtime, now: datetime) -> Iterator[Finding]:
    drifted = 0
    for schema in runtime.ledger.schemas.find(_MAX_TYPES):
        newest = [each.changes[-1].at for each in schema.fields.values() if each.lost and each.changes]
        lost = [at for at in newest if at > now - _DRIFT]
        if lost and drifted < _MAX_FAILURES:
            drifted += 1
            why = f"{len(lost)} {'field is' if len(lost) == 1 else 'fields are'} missing in the newest events"
            name, path = f"{schema.type} ({schema.bus})", f"/schemas/{quote(schema.type)}"
            yield Finding("Schema", name, path, "changed", max(lost), why)
