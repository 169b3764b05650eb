"""Repeats the reconciliation of committed batches from the files of the store, and checks the ledger against it.

The ledger's offsets, pending rows, deferred matches and replays must agree with the batches and their files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from eventbridge.errors import (
    NewerFormatError,
    NotFoundError,
    ReconciliationError,
    StoreError,
    StoreFileDamaged,
    StoreFileMissing,
)
from eventbridge.event.ids import Fingerprint
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.model.pending import DeferredMatch, PendingDeliveries
from eventbridge.pipeline.commit.reconciliation import reconciliation_of
from eventbridge.pipeline.commit.stage import FILE_KINDS, as_text, manifest_of
from eventbridge.policy.reconciliation import Reconciliation, differences
from eventbridge.processes import check_cancelled
from eventbridge.progress import Progress, unreported
from eventbridge.replay.account import coverage_differences
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.layout import require_known_format
from eventbridge.store.parquet import count_rows, read_table

#: The maximum number of batches with the same beginning of the id that are counted for an error message.
_MAX_NAMED = 20
_COUNTS = ("range_total", "gaps", "read", "malformed", "duplicate", "valid", "rows_in", "unroutable")
_PRINTS = ("matched", "delivered", "pending", "dead")


@dataclass(frozen=True)
class Audit:
    """The result of an audit: the number of batches, the sums, and every difference.

    If there is no difference, nothing is lost. `pruned` is the number of batches that no longer have all their files,
    because their retention has passed. For these, the audit uses the manifests.
    """

    batches: int = 0
    open_batches: int = 0
    pruned: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    deliveries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()


def find_batch(runtime: Runtime, name: str) -> str:
    """Return the id of the batch whose id begins with `name`. Raises NotFoundError if there is none, or several."""
    found = runtime.ledger.batches.ids_starting_with(name.lower(), _MAX_NAMED) if name else []
    if len(found) == 1:
        return found[0]
    if found:
        many = f"{len(found)} or more" if len(found) == _MAX_NAMED else str(len(found))
        raise NotFoundError(f"{many} batch ids begin with {name!r}, for example {found[0]}. Give more of the id.")
    raise NotFoundError(f"there is no batch {name!r}. `eventbridge status` lists the newest batches.")


def audit(
    runtime: Runtime, batch_id: str | None = None, *, whole: bool = False, progress: Progress = unreported
) -> Audit:
    """Audit one batch, or all batches with the offsets, pending rows, replays and manifests. Changes nothing.

    If `whole`, all files are read completely, including parts that no sum needs, such as events and requests.
    Uncommitted batches are counted but not audited, because they are not reconciled yet. A batch that is committed
    during the audit causes no difference, because the audit reads each fact before the fact from which it follows.
    """
    batches = [runtime.ledger.batches.get(batch_id)] if batch_id else runtime.ledger.batches.find(limit=None)
    committed = [batch for batch in batches if batch.state == "committed"]
    found: list[str] = []
    reconciliation = []
    for number, batch in enumerate(committed):
        check_cancelled()
        progress(number, len(committed))
        its_reconciliation, wrong = _audit_batch(runtime, batch)
        wrong += _damaged_files(runtime, batch, " ".join(wrong)) if whole else []
        found += [f"batch {batch.batch_id}: {each}" for each in wrong]
        if its_reconciliation is not None:
            reconciliation.append((batch, its_reconciliation))
    if batch_id is None:
        found += _offset_differences(runtime, committed)
        found += _pending_differences(runtime)
        found += coverage_differences(runtime)
        found += _unknown_manifests(runtime)
    return Audit(
        batches=len(committed),
        open_batches=len(batches) - len(committed),
        pruned=sum(batch.kept != "all" for batch in committed),
        events=_event_sums(reconciliation),
        deliveries=_delivery_sums(runtime, reconciliation, None if batch_id else committed),
        differences=tuple(found),
    )


def _audit_batch(runtime: Runtime, batch: Batch) -> tuple[Reconciliation | None, list[str]]:
    """Return the reconciliation of a committed batch, or None if it cannot be read, and the batch's differences.

    If files of the batch were removed after their retention, the manifest is used instead.
    """
    if batch.kept == "nothing":  # retention is about to remove its row
        return None, []
    try:
        reconciliation = (
            reconciliation_of(runtime, batch) if batch.kept == "all" else reconciliation_of_manifest(runtime, batch)
        )
    except NewerFormatError as error:
        return None, [str(error)]
    except (StoreError, ReconciliationError) as error:  # a redrive also reads the dead letters of other batches
        try:
            current = runtime.ledger.batches.get(batch.batch_id)
        except NotFoundError:
            return None, []
        if current.kept != batch.kept:  # files were removed in the meantime
            return _audit_batch(runtime, current)
        cannot = f"a file cannot be read: {error}" if isinstance(error, StoreError) else str(error)
        return None, [cannot, *_missing_files(runtime, batch, str(error))]
    wrong = [str(each) for each in differences(reconciliation)]
    if batch.kept != "all":
        return reconciliation, [*wrong, *_missing_files(runtime, batch, "")]
    try:
        wrong += manifest_differences(runtime, batch, reconciliation)
    except NewerFormatError as error:
        wrong.append(str(error))
    return reconciliation, wrong


def _missing_files(runtime: Runtime, batch: Batch, reported: str) -> Iterator[str]:
    """Yield a difference for each missing file of a batch that is not in `reported`.

    A reconciliation stops at the first missing file, so it reports no others.
    """
    if batch.kept != batch.remaining:  # retention is removing some of its files
        return
    for kind in FILE_KINDS:
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind):
            if file.path is not None and file.path not in reported and not runtime.store.exists(file.path):
                yield f"{file.path} is missing"


def _damaged_files(runtime: Runtime, batch: Batch, reported: str) -> Iterator[str]:
    """Yield a difference for each existing file of a batch that cannot be read and is not in `reported`."""
    for kind in FILE_KINDS:
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind):
            if file.path is None or file.path in reported or not runtime.store.exists(file.path):
                continue
            try:
                read_table(runtime.store, file.path)
            except StoreError as error:
                yield f"a file cannot be read: {error}"


def _offset_differences(runtime: Runtime, committed: list[Batch]) -> Iterator[str]:
    """Yield a difference for each partition whose committed ranges have a gap or do not end at the committed offset."""
    offsets = {(row.group, row.partition): row.offset for row in runtime.ledger.offsets.find()}
    by_partition: dict[tuple[str, Partition], list[tuple[int, int, str]]] = defaultdict(list)
    later: dict[tuple[str, Partition], set[int]] = defaultdict(set)  # the ends of batches committed during the audit
    for batch in committed:
        if batch.kind == "normal":
            for part in runtime.ledger.batches.ranges(batch.batch_id):
                by_partition[batch.runner, part.partition].append((part.start, part.end, batch.batch_id))
    for batch in _committed_since(runtime, committed):
        for part in runtime.ledger.batches.ranges(batch.batch_id):
            later[batch.runner, part.partition].add(part.end)
    for (group, partition), parts in by_partition.items():
        parts.sort()
        for (_, end, _), (start, _, batch_id) in pairwise(parts):
            if start != end:
                yield f"group {group}, {partition}: batch {batch_id} starts at {start}, the previous one ends at {end}"
        reached, committed_offset = parts[-1][1], offsets.get((group, partition))
        if committed_offset not in {reached, *(end for end in later[group, partition] if end > reached)}:
            yield f"group {group}, {partition}: the committed offset is {committed_offset}, batches end at {reached}"


def _committed_since(runtime: Runtime, committed: list[Batch]) -> list[Batch]:
    known = {batch.batch_id for batch in committed}
    return [
        batch for batch in runtime.ledger.batches.find(limit=None, state="committed") if batch.batch_id not in known
    ]


def _pending_differences(runtime: Runtime) -> Iterator[str]:
    """Yield a difference for each wrong pending row or deferred match.

    If it is closed, the batch that closed it must have taken it and be committed. Otherwise, the files that it names
    must have its rows.
    """
    rows: dict[str, PendingDeliveries | DeferredMatch] = {}
    for pending in runtime.ledger.pending.find():
        rows[f"pending row {pending.pending_id} of {pending.rule}/{pending.target}"] = pending
    for deferred in runtime.ledger.deferred_matches.all():
        rows[f"deferred match {deferred.deferred_match_id} of {deferred.rule}"] = deferred
    states = {batch.batch_id: batch.state for batch in runtime.ledger.batches.find(limit=None)}
    rows_in: dict[str, int | None] = {}
    for name, row in rows.items():
        if row.state == "closed":
            yield from _closing_differences(row, name, states)
        else:
            yield from _file_differences(runtime, row, name, rows_in)


def _closing_differences(row: PendingDeliveries | DeferredMatch, name: str, states: Mapping[str, str]) -> Iterator[str]:
    if row.closed_by is None or row.closed_by != row.taken_by or states.get(row.closed_by) != "committed":
        yield f"{name}: closed by batch {row.closed_by}, which did not take it or is not committed"


def _file_differences(
    runtime: Runtime, row: PendingDeliveries | DeferredMatch, name: str, rows_in: dict[str, int | None]
) -> Iterator[str]:
    for file, rows in row.files:
        if file not in rows_in:
            try:
                rows_in[file] = count_rows(runtime.store, file)
            except StoreError:
                rows_in[file] = None
        row_count = rows_in[file]
        if row_count is None:
            yield f"{name}: its file {file} cannot be read"
        elif max(rowset.decode(rows), default=-1) >= row_count:
            yield f"{name}: it has rows that are not in {file}"


def _unknown_manifests(runtime: Runtime) -> Iterator[str]:
    # only those that are not compacted, because a ledger compacts the manifests of its own batches
    paths = list(runtime.store.list("manifests/"))
    known = {batch.batch_id for batch in runtime.ledger.batches.find(limit=None)}
    for path in paths:
        batch_id = path.rsplit("/", 1)[-1].removesuffix(".json")
        if batch_id not in known:
            yield f"{path}: this ledger does not have the batch; another ledger has written to this store"


def _event_sums(reconciliation: list[tuple[Batch, Reconciliation]]) -> dict[str, int]:
    """Return the sums of events. They satisfy: offsets taken + events taken from the archive = gaps + read."""
    names = ("gaps", "read", "malformed", "duplicate", "tombstone", "valid")
    # A batch of a replay or a redrive takes events from the archive, and no offsets.
    taken = {
        "range_total": sum(each.range_total for batch, each in reconciliation if batch.kind == "normal"),
        "from_archive": sum(each.range_total for batch, each in reconciliation if batch.kind != "normal"),
    }
    return taken | {name: sum(getattr(each, name) for _, each in reconciliation) for name in names}


def _delivery_sums(
    runtime: Runtime, reconciliation: list[tuple[Batch, Reconciliation]], committed: list[Batch] | None
) -> dict[str, dict[str, int]]:
    """Return the sums of deliveries by `<rule>/<target>`.

    `pending` counts all deliveries that are pending now. In the audit of one batch, for which `committed` is None, it
    counts those that the batch made pending.
    """
    sums: dict[str, dict[str, int]] = defaultdict(
        lambda: {"matched": 0, "delivered": 0, "dead_lettered": 0, "pending": 0}
    )
    for batch, each in reconciliation:
        columns: list[tuple[str, Mapping[str, Fingerprint]]] = [
            ("delivered", each.delivered),
            ("dead_lettered", each.dead),
            ("matched", each.copies),
        ]
        if batch.has_route_stage or batch.kind == "redrive":
            columns.append(("matched", each.matched))
        if committed is None:
            columns += [("pending", each.pending), ("pending", each.copies)]
        for name, fingerprints in columns:
            for key, value in fingerprints.items():
                sums[key][name] += value.count
    if committed is not None:
        summed = {batch.batch_id for batch, _ in reconciliation}
        rows = runtime.ledger.pending.find()
        since = {batch.batch_id for batch in _committed_since(runtime, committed)}
        for row in rows:  # a batch that closed a row during the audit is not in the sums, so the row still counts
            if (row.state != "closed" or row.closed_by in since) and row.batch_id in summed:
                sums[f"{row.rule}/{row.target}"]["pending"] += row.count
    return {key: dict(sums[key]) for key in sorted(sums)}


def manifest_differences(runtime: Runtime, batch: Batch, reconciliation: Reconciliation) -> Iterator[str]:
    """Yield the differences in a committed batch's manifest: it is lost, or damaged, or contradicts the files.

    Raises NewerFormatError if a newer version wrote the manifest, because it may have content that is unknown here.
    """
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        written = _read_manifest(runtime, path)
    except StoreError as error:
        yield str(error)
        return
    require_known_format(path, written.get("format"))
    now = json.loads(json.dumps(manifest_of(runtime, batch, reconciliation)))
    written.setdefault("format", now["format"])  # the first manifests had no format
    for name in sorted(set(written) | set(now)):
        if written.get(name) != now.get(name):
            yield f"{path} has {name} {written.get(name)!r}, but its files have {now.get(name)!r}"


def is_manifest_readable(runtime: Runtime, batch: Batch) -> bool:
    """Return whether the manifest of a committed batch exists and can be read, whatever its content."""
    try:
        _read_manifest(runtime, layout.manifest(batch.planned_at, batch.batch_id))
    except (StoreFileMissing, StoreFileDamaged):
        return False
    return True


def reconciliation_of_manifest(runtime: Runtime, batch: Batch) -> Reconciliation:
    """Return the reconciliation of a batch from its manifest, for a batch whose files were removed.

    Raises StoreError if the manifest cannot be read, ReconciliationError if it is damaged or has other ranges than the
    ledger, and NewerFormatError if a newer version wrote it.
    """
    path = layout.manifest(batch.planned_at, batch.batch_id)
    try:
        written = dict(json.loads(runtime.store.get(path)))
        require_known_format(path, written.get("format"))
        counts: dict[str, Any] = {name: int(written["counts"][name]) for name in _COUNTS}
        counts["tombstone"] = int(written["counts"].get("tombstone", 0))
        prints = {
            name: {key: Fingerprint(*each) for key, each in written["fingerprints"][name].items()} for name in _PRINTS
        }
        ranges = [[*part.partition, part.start, part.end] for part in runtime.ledger.batches.ranges(batch.batch_id)]
        if (written["batch_id"], written["ranges"]) != (batch.batch_id, ranges):
            raise ReconciliationError(
                f"{path} is for batch {written['batch_id']} with the ranges {written['ranges']}, but the ledger has "
                f"batch {batch.batch_id} with the ranges {ranges}"
            )
    except (ValueError, KeyError, TypeError):
        raise ReconciliationError(f"{path} is damaged. Restore it from a copy of the store") from None
    return Reconciliation(
        **counts,
        malformed_records=counts["malformed"],
        unroutable_records=counts["unroutable"],
        matched=prints["matched"],
        recorded=prints["matched"],
        delivered=prints["delivered"],
        pending=prints["pending"],
        pending_by_settlement=prints["pending"],
        dead=prints["dead"],
        dead_by_settlement=prints["dead"],
    )


def write_manifest_again(runtime: Runtime, batch: Batch, reconciliation: Reconciliation) -> None:
    """Rewrite the manifest of a committed batch from its files, whose reconciliation must have no differences."""
    runtime.store.put(
        layout.manifest(batch.planned_at, batch.batch_id), as_text(manifest_of(runtime, batch, reconciliation))
    )


def _read_manifest(runtime: Runtime, path: str) -> dict[str, Any]:
    try:
        written = json.loads(runtime.store.get(path))
    except ValueError:
        written = None
    if not isinstance(written, dict):
        raise StoreFileDamaged(f"{path} is damaged: it is not a JSON object")
    return written
