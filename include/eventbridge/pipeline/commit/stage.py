"""Runs the commit stage: reconciles the batch, writes its manifest, and commits the offsets to the ledger and then the
bus.

`Settlement.commit` of the ledger moves the offsets in the transaction that completes the batch; `commit_to_bus.py`
then commits them to the bus.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from eventbridge.errors import ReconciliationError
from eventbridge.event.ids import Fingerprint, delivery_id_text
from eventbridge.model.batch import Batch, BatchFile, FileKind, ReadRange
from eventbridge.model.file_detail import LandedRange, RoutedSlice
from eventbridge.model.partition import LastMessage, Partition
from eventbridge.model.pending import DeferredMatch
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.commit.reconciliation import reconciliation_of
from eventbridge.pipeline.commit.stats import stats_of
from eventbridge.pipeline.commit.traces import report_traces
from eventbridge.pipeline.commit_to_bus import commit_to_bus
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import batch_deliveries, first_settlement, publish_settlement, settlements
from eventbridge.pipeline.settle.statuses import MATCHED_COLUMNS, Judge
from eventbridge.policy.quality import failed_expectations
from eventbridge.policy.reconciliation import Fingerprints, Reconciliation, differences, settles_all
from eventbridge.runtime.batch_files import naming_the_repair
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.quotas import count_batch
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.columns import codes_of, flag_column, numbers_of
from eventbridge.store.layout import FORMAT, require_known_format
from eventbridge.telemetry.protocol import NO_TELEMETRY

log = logging.getLogger(__name__)

#: The kinds of files of a batch, in the order in which the stages write them.
FILE_KINDS: tuple[FileKind, ...] = ("buffer", "delivery", "outcome", "settlement", "dead_letter")
_Files = Mapping[FileKind, list[BatchFile]]


@instrumented("commit")
def commit(runtime: Runtime, batch_id: str) -> bool:
    """Commit a settled batch; return whether the batch is now committed. A batch that is not settled stays as it is.

    Raises ReconciliationError, and commits nothing, if the reconciliation has a difference or a file cannot be read. If
    the bus rejects the offsets, an alarm is logged, but the commit succeeds, because the ledger is the source of truth
    and the next listen tries again.
    """
    batch = runtime.ledger.batches.get(batch_id)
    if batch.state == "settling":
        _prove_and_commit(runtime, batch)
        batch = runtime.ledger.batches.get(batch_id)
        if runtime.telemetry is not NO_TELEMETRY and batch.state == "committed":
            report_traces(runtime, batch)
    publish_operational_events(runtime)
    if batch.state != "committed":
        return False
    if batch.kind == "normal" and batch.bus_committed_at is None:
        commit_to_bus(runtime, batch)
    return True


def _prove_and_commit(runtime: Runtime, batch: Batch) -> None:
    first = first_settlement(runtime, batch)
    with naming_the_repair(batch.batch_id, "committed"):
        reconciliation = reconciliation_of(runtime, batch)
        if not settles_all(reconciliation) and close_deficit(runtime, batch, first):
            reconciliation = reconciliation_of(runtime, batch)
    wrong = differences(reconciliation)
    if wrong:
        runtime.ledger.settlement.prove_current(batch.batch_id, first)  # raises if the batch was settled again
        raise ReconciliationError(
            f"batch {batch.batch_id} cannot be committed because it is not reconciled: "
            + "; ".join(map(str, wrong))
            + ". Nothing was committed; clear the tasks write_dead_letters and schedule_retries of this run, "
            + f"and if the error persists, run `eventbridge audit --batch {batch.batch_id}`"
        )
    files = _files(runtime, batch)
    _write_manifest(runtime, batch, reconciliation, first, files)
    failed = failed_expectations(runtime.rules_of(batch), reconciliation) if batch.kind == "normal" else {}
    for rule, detail in failed.items():
        log.error("ALARM batch %s has put the rule %s on hold: %s", batch.batch_id, rule, detail)
    ranges = _ranges(runtime, batch)
    now = runtime.clock()
    stats = stats_of(runtime, batch, now, files["outcome"])
    count_batch(runtime, batch)
    runtime.ledger.settlement.commit(batch.batch_id, batch.runner, ranges, now, first, failed, stats)


def _ranges(runtime: Runtime, batch: Batch) -> list[ReadRange]:
    """Return the ranges of a batch, with the last message that was read from each partition."""
    landed = [file.detail for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")]
    last: dict[Partition, LastMessage] = {}
    for each in landed:
        if isinstance(each, LandedRange) and each.last is not None:
            last[each.partition] = max(each.last, last.get(each.partition, each.last))
    ranges = runtime.ledger.batches.ranges(batch.batch_id)
    return [ReadRange(span.partition, span.start, span.end, last.get(span.partition)) for span in ranges]


def _write_manifest(runtime: Runtime, batch: Batch, reconciliation: Reconciliation, first: str, files: _Files) -> None:
    path = layout.manifest(batch.planned_at, batch.batch_id)
    manifest = manifest_of(runtime, batch, reconciliation, files)
    text = as_text(manifest)
    if runtime.store.create(path, text) or (written := runtime.store.get(path)) == text:
        return
    runtime.ledger.settlement.prove_current(batch.batch_id, first)
    if _settlements(path, written)[:1] != manifest["files"]["settlement"][:1]:
        runtime.store.put(path, text)  # a commit wrote it before the batch was settled again
        return
    raise ReconciliationError(
        f"{path} exists and contradicts the reconciliation of batch {batch.batch_id}: "
        "two ledgers write to the same store. Stop the processes of one of them before you start this runner again"
    )


def _settlements(path: str, manifest: bytes) -> list[str]:
    """Return the paths of a manifest's settlement files; an empty list if the manifest is damaged.

    Raises NewerFormatError for a newer format.
    """
    try:
        fields = dict(json.loads(manifest))
        require_known_format(path, fields.get("format"))
        return list(fields["files"]["settlement"])
    except (ValueError, KeyError, TypeError):
        return []


def _files(runtime: Runtime, batch: Batch) -> _Files:
    return {kind: runtime.ledger.files.list_for_batch(batch.batch_id, kind) for kind in FILE_KINDS}


def manifest_of(
    runtime: Runtime, batch: Batch, reconciliation: Reconciliation, files: _Files | None = None
) -> dict[str, Any]:
    """Return the manifest of a batch as a JSON object: what the batch took, from where, and what became of it.

    `files` are the batch's files by kind; if omitted, they are read from the ledger.
    """
    taken = runtime.ledger.pending.list_taken_by(batch.batch_id)
    taken_deferred_matches = runtime.ledger.deferred_matches.list_taken_by(batch.batch_id)
    files = files or _files(runtime, batch)
    manifest = {
        "format": FORMAT,
        "batch_id": batch.batch_id,
        "kind": batch.kind,
        "runner": batch.runner,
        "bus": batch.bus,
        "rule_set": batch.rule_set,
        "planned_at": batch.planned_at.isoformat(),
        "parents": sorted({row.batch_id for row in taken} | {row.batch_id for row in taken_deferred_matches}),
        "taken": sorted(
            [row.batch_id, row.chunk_id, row.rule, row.target, row.attempts, list(map(list, row.files))]
            for row in taken
        ),
        "ranges": [[*part.partition, part.start, part.end] for part in runtime.ledger.batches.ranges(batch.batch_id)],
        "gaps": [
            [*file.detail.partition, start, end]
            for file in files["buffer"]
            if isinstance(file.detail, LandedRange)
            for start, end in file.detail.gaps
        ],
        "files": {kind: [file.path for file in found if file.path] for kind, found in files.items()},
        "counts": _counts(reconciliation),
        "fingerprints": {
            name: _as_json(getattr(reconciliation, name)) for name in ("matched", "delivered", "pending", "dead")
        },
    }
    # Included only if not empty, so that older manifests without these keys still equal the audit's result.
    if_any = {
        "matching": _matching(files["delivery"]),
        "taken_deferred_matches": _deferred_matches(taken_deferred_matches),
        "taken_dead_letters": [
            [each.file, each.rows] for each in runtime.ledger.redrives.list_taken_by(batch.batch_id)
        ],
        "replay_id": batch.replay_id if batch.kind == "replay" else "",
        "taken_events": _events(runtime, batch) if batch.kind == "replay" else [],
        "deferred_matches": _deferred_matches(runtime.ledger.deferred_matches.list_for_batch(batch.batch_id)),
        "rejected": _as_json(reconciliation.rejected),
    }
    return manifest | {name: value for name, value in if_any.items() if value}


def _counts(reconciliation: Reconciliation) -> dict[str, int]:
    names = ("range_total", "gaps", "read", "malformed", "duplicate", "valid", "rows_in", "unroutable")
    if_any = {"tombstone": reconciliation.tombstone} if reconciliation.tombstone else {}
    return {name: getattr(reconciliation, name) for name in names} | if_any


def as_text(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as JSON with sorted keys and one value per line.

    Every software version must write the same bytes.
    """
    return msgspec.json.format(json.dumps(manifest, sort_keys=True), indent=1).encode()


def _matching(files: Iterable[BatchFile]) -> dict[str, int]:
    """Return how much work the compiled code left to the reference code, and how often it dropped its table of classes;
    see `RoutedSlice`."""
    slices = [file.detail for file in files if isinstance(file.detail, RoutedSlice)]
    counts = {
        "reference_matched": sum(each.reference_matched for each in slices),
        "reference_rendered": sum(each.reference_rendered for each in slices),
        "clears": sum(each.clears for each in slices),
    }
    return {name: count for name, count in counts.items() if count}


def _events(runtime: Runtime, batch: Batch) -> list[list[str]]:
    return [[each.file, each.rows] for each in runtime.ledger.replays.list_taken_by(batch.batch_id)]


def _deferred_matches(matches: Iterable[DeferredMatch]) -> list[list[Any]]:
    return sorted([row.batch_id, row.rule, row.reason, list(map(list, row.files))] for row in matches)


def _as_json(fingerprints: Fingerprints) -> dict[str, list[int]]:
    return {key: value.as_list() for key, value in sorted(fingerprints.items()) if value != Fingerprint()}


#: The maximum number of delivery ids that an error lists; it states only the number of the rest.
_IDS_SHOWN = 20


def close_deficit(runtime: Runtime, batch: Batch, first: str) -> bool:
    """Write a supplement that settles the deliveries that the settlement lacks; return whether any were missing.

    They are settled as if no response to them had arrived. Raises ReconciliationError with the ids of surplus
    deliveries, which are settled twice or do not belong to the batch.
    """
    entries = _count_entries(runtime, batch)
    judge = Judge(runtime, batch)
    missing = []
    for file, rows, table in batch_deliveries(runtime, batch, MATCHED_COLUMNS):
        lacking = entries.take(file, rows)
        if lacking.any():
            missing.append(judge.settle(file, rows[lacking], table.filter(flag_column(lacking))))
    if surplus := entries.excess():
        raise _surplus(runtime, batch, surplus)
    if not missing:
        return False
    count = sum(table.num_rows for table in missing)
    log.error("ALARM deliveries that the settlement of batch %s lacks, now settled: %d", batch.batch_id, count)
    number = int(runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")[-1].key) + 1
    publish_settlement(runtime, batch, number, missing, first)
    schedule_retries(runtime, batch.batch_id)
    return True


class _EntryCounts:
    """Counts, for each row of a delivery file, its entries in the settlement minus its entries in the batch."""

    def __init__(self) -> None:
        self._counts: dict[str, Rows] = {}

    def add(self, file: str, rows: Rows) -> None:
        counts = np.bincount(rows)
        known = self._counts.get(file, np.zeros(0, np.int64))
        longer, shorter = (counts, known) if len(counts) > len(known) else (known, counts)
        longer[: len(shorter)] += shorter
        self._counts[file] = longer

    def take(self, file: str, rows: Rows) -> npt.NDArray[np.bool_]:
        """Subtract rows of the batch, and return which of them the settlement lacks."""
        counts = np.zeros(int(rows.max(initial=-1)) + 1, np.int64)
        self.add(file, rows[:0])
        known = self._counts[file]
        counts[: len(known)] = known[: len(counts)]
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], rows[order])  # the first position of a row that occurs twice
        lacking = np.zeros(len(rows), bool)
        lacking[order] = np.arange(len(rows)) - starts >= counts[rows[order]]
        np.subtract.at(known, rows[~lacking], 1)
        return lacking

    def excess(self) -> set[tuple[str, int]]:
        """Return the rows with more entries in the settlement than in the batch, as (file, row)."""
        return {(file, row) for file, counts in self._counts.items() for row in np.flatnonzero(counts > 0).tolist()}


def _count_entries(runtime: Runtime, batch: Batch) -> _EntryCounts:
    entries = _EntryCounts()
    for _, table in settlements(runtime, batch.batch_id, ["file", "row"]):
        file_of, files = codes_of(table["file"])
        rows = numbers_of(table["row"])
        for number, file in enumerate(files):
            entries.add(file, rows[file_of == number])
    return entries


def _surplus(runtime: Runtime, batch: Batch, event_rows: set[tuple[str, int]]) -> ReconciliationError:
    ids = set()
    for _, table in settlements(runtime, batch.batch_id, ["file", "row", "delivery_id"]):
        ids |= {
            delivery_id_text(row["delivery_id"]) for row in table.to_pylist() if (row["file"], row["row"]) in event_rows
        }
    found = sorted(ids)
    more = f" and {len(found) - _IDS_SHOWN} more" if len(found) > _IDS_SHOWN else ""
    return ReconciliationError(
        f"batch {batch.batch_id} cannot be committed: its settlement contains deliveries twice, or deliveries that "
        f"the batch does not have: {', '.join(found[:_IDS_SHOWN])}{more}. Nothing was committed. "
        f"`eventbridge batches repair {batch.batch_id} --dry-run` shows how it would be settled again"
    )
