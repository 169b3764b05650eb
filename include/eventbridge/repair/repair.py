"""Repairs a batch that has surplus deliveries, or unreadable or wrong files, and commits it if necessary.

Surplus deliveries are settled twice or do not belong to the batch. `eventbridge batches repair` calls this module.
Files that are set aside stay in the store. A record in the store lists them, and the faults because of which they were
set aside.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from eventbridge.dead_letters import redrive_inputs as of_dead_letters
from eventbridge.errors import ReconciliationError, StoreError, StoreFileDamaged, StoreFileMissing, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch, BatchFile, FileKind
from eventbridge.model.file_detail import LandedRange, RoutedSlice
from eventbridge.pipeline.commit.reconciliation import reconciliation_of
from eventbridge.pipeline.commit.stage import FILE_KINDS, commit
from eventbridge.pipeline.ingest.checking import Checking, Limits, valid_identities, write_file
from eventbridge.pipeline.ingest.open_batch import end_if_open
from eventbridge.pipeline.route.stage import job_of
from eventbridge.pipeline.route.tries import result_file
from eventbridge.pipeline.settle.dead_letters import dead_letters_again, write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import (
    batch_deliveries,
    create_settlement,
    first_settlement,
    settlement_key,
    settlements,
)
from eventbridge.pipeline.settle.statuses import read_settled_tables
from eventbridge.policy.reconciliation import differences
from eventbridge.progress import Progress, unreported
from eventbridge.repair.audit import is_manifest_readable, manifest_differences, write_manifest_again
from eventbridge.replay import plan as of_events
from eventbridge.routing.job import Router, Slice
from eventbridge.runtime.identity import refuse_other_log
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table


@dataclass(frozen=True)
class Repair:
    """The faults of a batch, and what its repair does. `record` is the path of the repair's record, "" in a dry run."""

    batch_id: str
    surplus: tuple[str, ...] = ()  # ids of deliveries that the settlement has twice, or that the batch does not have
    set_aside: tuple[str, ...] = ()  # files that are no longer used
    rebuilt: tuple[str, ...] = ()  # files that are rewritten under the same name
    settled_again: bool = False
    unproven: int = 0  # deliveries without a response in the readable files, which are retried
    committed: bool = False
    record: str = ""
    unreadable: tuple[str, ...] = field(default=())
    wrong: tuple[str, ...] = field(default=())  # files that can be read but contradict the batch's other files

    @property
    def needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.surplus or self.unreadable or self.wrong)


def repair_batch(
    runtime: Runtime, batch_id: str, router: Router, *, dry_run: bool, progress: Progress = unreported
) -> Repair:
    """Repair and finish a batch, or with `dry_run` only report what that would do. A sound batch is not changed.

    Archive files are read again from the bus, and delivery files are routed again from the archive. The inputs of a
    redrive or replay are rebuilt from the dead letters or events that it took, dead letters from the settlement, and
    the manifest of a committed batch from all other files. If a segment or the settlement cannot be read, or if there
    are surplus deliveries, an uncommitted batch is settled again from its readable segments. Deliveries without a
    response then have the status `unknown`, and are retried with the same id. Raises UserError if files of the batch
    were removed after their retention, and ReconciliationError if a file cannot be rebuilt and must be restored from a
    copy of the store. `progress` gets the number of files that were checked.
    """
    if (batch := runtime.ledger.batches.get(batch_id)).kept != "all":
        raise UserError(
            f"batch {batch_id} is past its retention, and some of its files were removed, so it cannot be repaired. "
            f"`eventbridge audit --batch {batch_id}` checks its remaining files"
        )
    batch = batch if dry_run else end_if_open(runtime, batch)
    old = first_settlement(runtime, batch)
    unreadable = _unreadable(runtime, batch, progress)
    _refuse_lost_content(batch, unreadable)
    rebuilt, broken = _divide(unreadable)
    surplus = () if broken or rebuilt or batch.state != "settling" else _surplus(runtime, batch)
    wrong = [] if rebuilt or broken or surplus else _wrong_dead_letters(runtime, batch)
    known = Repair(
        batch_id,
        rebuilt=tuple(str(file.path) for file in (*rebuilt, *wrong)),
        unreadable=tuple(str(file.path) for file in (*rebuilt, *broken)),
        wrong=tuple(str(file.path) for file in wrong),
        committed=batch.state == "committed",
    )
    if known.rebuilt and dry_run:  # other faults can be found only after these files are rebuilt
        return known
    record = _rebuild(runtime, batch, [*rebuilt, *wrong], router, known) if known.rebuilt else ""
    if batch.state == "committed":
        return _repair_manifest(runtime, batch, replace(known, record=record), dry_run=dry_run)
    found = _settle_again(runtime, batch, broken, old, known, dry_run=dry_run)
    found = replace(found, record=found.record or record)
    if dry_run or not found.needed:
        return found
    if runtime.ledger.batches.get(batch_id).state in ("routed", "settling"):
        write_dead_letters(runtime, batch_id)
        schedule_retries(runtime, batch_id)
        return replace(found, committed=commit(runtime, batch_id))
    return found


def _unreadable(runtime: Runtime, batch: Batch, progress: Progress) -> dict[FileKind, list[BatchFile]]:
    """Return those files of a batch that cannot be read, by kind."""
    named = [
        file
        for kind in FILE_KINDS
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, kind)
        if file.path is not None
    ]
    found: dict[FileKind, list[BatchFile]] = {kind: [] for kind in FILE_KINDS}
    for number, file in enumerate(named, 1):
        try:
            read_table(runtime.store, str(file.path))
        except (StoreFileMissing, StoreFileDamaged):
            found[file.kind].append(file)
        progress(number, len(named))
    progress(len(named), None)  # how long the repair takes is unknown
    return found


def _divide(unreadable: dict[FileKind, list[BatchFile]]) -> tuple[list[BatchFile], list[BatchFile]]:
    """Return the files to rebuild, and the files because of which the batch must be settled again."""
    rebuilt = [*unreadable["buffer"], *unreadable["delivery"]]  # delivery files are routed from buffer files
    broken = [*unreadable["outcome"], *unreadable["settlement"]]
    (broken or rebuilt).extend(unreadable["dead_letter"])  # settling a batch again also writes its dead letters
    return rebuilt, broken


def _refuse_lost_content(batch: Batch, unreadable: dict[FileKind, list[BatchFile]]) -> None:
    """Raise ReconciliationError if no other file has the content of an unreadable file."""
    begun = [file for kind in ("buffer", "delivery") for file in unreadable[kind]]
    lost = [file for file in begun if not (_begins_batch(batch, file) or isinstance(file.detail, RoutedSlice))]
    if batch.state == "committed":
        lost += [*unreadable["outcome"], *unreadable["settlement"]]
    elif batch.state in ("open", "planned", "buffered"):
        lost += unreadable["delivery"]
    if lost:
        raise ReconciliationError(
            f"batch {batch.batch_id}, {batch.state}, cannot be repaired, because no other file has the content of "
            + ", ".join(str(file.path) for file in lost)
            + ". Restore it from a copy of the store; nothing was changed"
        )


def _rebuild(runtime: Runtime, batch: Batch, files: Sequence[BatchFile], router: Router, known: Repair) -> str:
    """Rebuild files under the same names. Return the path of the repair's record, which is written before them."""
    record = ""
    for first in (True, False):  # the inputs of the batch come first, because slices are routed from them
        some = [file for file in files if file.kind != "dead_letter" and _begins_batch(batch, file) == first]
        if not some:
            continue
        made = (
            _rebuild_inputs(runtime, batch, some)
            if first
            else [_route_again(runtime, batch, file, router) for file in some]
        )
        record = record or _write_record(runtime, batch, known)
        for file, path in zip(some, made, strict=True):
            runtime.store.put(str(file.path), runtime.store.get(path))
            runtime.store.delete(path)
    for path, table in _rebuilt_dead_letters(runtime, batch, [file for file in files if file.kind == "dead_letter"]):
        record = record or _write_record(runtime, batch, known)
        write_table(runtime.store, path, table)
    return record


def _repair_manifest(runtime: Runtime, batch: Batch, known: Repair, *, dry_run: bool) -> Repair:
    """Reconcile a committed batch, and rewrite its manifest if it is lost, damaged or wrong."""
    reconciliation = reconciliation_of(runtime, batch)
    if wrong := differences(reconciliation):
        raise ReconciliationError(
            f"batch {batch.batch_id}: all its files can be read, but it is not reconciled: "
            f"{'; '.join(map(str, wrong))}. One of its files has changed: restore it from a copy of the store"
        )
    if not list(manifest_differences(runtime, batch, reconciliation)):
        return known
    path = layout.manifest(batch.planned_at, batch.batch_id)
    found = replace(known, rebuilt=(*known.rebuilt, path), unreadable=(*known.unreadable, path))
    if is_manifest_readable(runtime, batch):
        found = replace(found, unreadable=known.unreadable, wrong=(*known.wrong, path))
    if dry_run:
        return found
    record = found.record or _write_record(runtime, batch, found)
    write_manifest_again(runtime, batch, reconciliation)
    return replace(found, record=record)


def _wrong_dead_letters(runtime: Runtime, batch: Batch) -> list[BatchFile]:
    """Return the dead letter files whose rows do not follow from the batch's other files."""
    files = [
        file for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter") if file.path is not None
    ]
    try:
        again = dead_letters_again(runtime, batch, files)
        return [file for file, table in again if not read_table(runtime.store, str(file.path)).equals(table)]
    except (StoreFileMissing, StoreFileDamaged, ReconciliationError):
        return []  # a file of another batch is unreadable, so there is nothing to compare with


def _rebuilt_dead_letters(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the path and the recreated rows of each dead letter file.

    Raises ReconciliationError if they cannot be recreated, or if their number differs from the recorded one.
    """
    try:
        for file, table in dead_letters_again(runtime, batch, files):
            if table.num_rows != file.rows:
                raise _other_rows(batch, file)
            yield str(file.path), table
    except (StoreFileMissing, StoreFileDamaged) as error:
        raise ReconciliationError(
            f"batch {batch.batch_id}: its dead letters cannot be recreated, because their sources "
            f"cannot be read. {error} Restore the file from a copy of the store or, if it is another batch's, "
            "repair that batch; then run this again"
        ) from error


def _route_again(runtime: Runtime, batch: Batch, file: BatchFile, router: Router) -> str:
    """Route a slice again, with the same events and rules, and return the path of the new delivery file.

    Raises ReconciliationError if the file has other rows than the old one.
    """
    had = file.detail
    assert isinstance(had, RoutedSlice)  # see _refuse_lost_content
    task = Slice(file.key, had.file, had.row_from, had.row_to)
    later = tuple(had.candidate_events)  # the rules that were deferred when the slice was first routed
    job = structs.replace(job_of(runtime, batch), later=later)
    (result,) = router.route_slices(job, [task])
    made = result_file(batch.batch_id, result)
    has = made.detail
    same = isinstance(has, RoutedSlice) and (has.rows_in, has.matched, has.pieces) == (
        had.rows_in,
        had.matched,
        had.pieces,
    )
    if made.path is None or made.rows != file.rows or not same:
        raise _other_rows(batch, file)
    return made.path


def _other_rows(batch: Batch, file: BatchFile) -> ReconciliationError:
    return ReconciliationError(
        f"batch {batch.batch_id}: {file.path} would be rebuilt with other rows than it had. "
        "Restore it from a copy of the store, then run this again"
    )


def _settle_again(
    runtime: Runtime, batch: Batch, broken: Sequence[BatchFile], old: str, known: Repair, *, dry_run: bool
) -> Repair:
    lost = [file for file in broken if file.kind == "outcome"]
    surplus: tuple[str, ...] = ()
    if batch.state == "settling" and not any(file.kind == "settlement" for file in broken):
        surplus = _surplus(runtime, batch)
    if not broken and not surplus:
        return known
    aside: list[BatchFile] = [*lost]
    settlement: BatchFile | None = None
    settled: list[pa.Table] = []
    if batch.state == "settling":
        aside += [
            *runtime.ledger.files.list_for_batch(batch.batch_id, "settlement"),
            *runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"),
        ]
        settled = list(read_settled_tables(runtime, batch, without={file.key for file in lost}))
    found = replace(
        known,
        surplus=surplus,
        set_aside=tuple(str(file.path) for file in aside),
        settled_again=batch.state == "settling",
        unproven=sum(table["status"].to_pylist().count("unknown") for table in settled),
    )
    if dry_run:
        return found
    record = _write_record(runtime, batch, found)
    if batch.state == "settling":
        settlement = _write_settlement(runtime, batch, settled)
    if not runtime.ledger.settlement.set_aside(batch.batch_id, batch.state, aside, old, settlement):
        raise ReconciliationError(
            f"batch {batch.batch_id} cannot be settled again: its pending deliveries were taken by another batch, "
            "or it was changed. Wait until `eventbridge status` shows no open retry batch, then run this again"
        )
    return replace(found, record=record)


def _surplus(runtime: Runtime, batch: Batch) -> tuple[str, ...]:
    named: Counter[tuple[str, int, bytes]] = Counter()
    for _, table in settlements(runtime, batch.batch_id, ["file", "row", "delivery_id"]):
        named.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    for file, rows, table in batch_deliveries(runtime, batch, ["delivery_id"]):
        for row, delivery_id in zip(rows.tolist(), table["delivery_id"].to_pylist(), strict=True):
            named[file, row, delivery_id] -= 1
    return tuple(sorted({delivery_id_text(delivery_id) for _, _, delivery_id in +named}))


def _write_settlement(runtime: Runtime, batch: Batch, settled: Sequence[pa.Table]) -> BatchFile:
    known = runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
    number = int(known[-1].key) + 1 if known else 1
    # The number may be in use, because an earlier repair may have died before it recorded its settlement.
    while not create_settlement(runtime, layout.settlement(batch.planned_at, batch.batch_id, number), settled):
        number += 1
    path = layout.settlement(batch.planned_at, batch.batch_id, number)
    rows = sum(table.num_rows for table in settled)
    return BatchFile(batch.batch_id, "settlement", settlement_key(number), path, rows)


def _write_record(runtime: Runtime, batch: Batch, repair: Repair) -> str:
    text = json.dumps(asdict(repair) | {"at": runtime.clock().isoformat(), "state": batch.state}, indent=1).encode()
    number = 0
    while not runtime.store.create(layout.repair(batch.planned_at, batch.batch_id, number), text):
        number += 1
    return layout.repair(batch.planned_at, batch.batch_id, number)


def _begins_batch(batch: Batch, file: BatchFile) -> bool:
    """Return whether a file is an input of its batch, so that nothing in the batch precedes it."""
    landed = isinstance(file.detail, LandedRange)
    return landed or of_dead_letters.is_redrive_input(batch, file) or of_events.is_replay_input(batch, file)


def _rebuild_inputs(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> list[str]:
    """Rebuild input files under new names, and return their paths. Raises ReconciliationError if that fails."""
    landed = _land_all_again(runtime, batch, [file for file in files if isinstance(file.detail, LandedRange)])
    return [landed[file.key] if file.key in landed else _take_again(runtime, batch, file) for file in files]


def _take_again(runtime: Runtime, batch: Batch, file: BatchFile) -> str:
    if batch.kind == "replay":
        return str(of_events.rebuild(runtime, batch).path)
    return str(of_dead_letters.rebuild(runtime, batch, file).file.path)


def _land_all_again(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> dict[str, str]:
    """Rebuild landed files in any order that works, and return their new paths by key.

    The order matters, because a duplicate is recognised only if the file with the first event exists. The ledger's
    record of each file shows whether the file was rebuilt correctly.
    """
    made: dict[str, str] = {}
    while left := [file for file in files if file.key not in made]:
        before = len(made)
        for file in left:
            if (path := _land_again(runtime, batch, file, made)) is not None:
                made[file.key] = path
        if len(made) == before:
            raise ReconciliationError(
                f"batch {batch.batch_id}: {left[0].path} cannot be rebuilt, because its range of the bus {batch.bus} "
                "now results in other rows. Restore it from a copy of the store; nothing was changed"
            )
    return made


def _land_again(runtime: Runtime, batch: Batch, file: BatchFile, made: Mapping[str, str]) -> str | None:
    """Read the range of a file from the bus again, and return the path of the new file.

    Returns None if the rows differ from the recorded ones, given the files `made` so far (paths by key). Only the time
    of landing may differ: it is taken from the file's deliveries or, if there are none, from the time at which the
    batch was planned.
    """
    had = file.detail
    assert isinstance(had, LandedRange), "it is landed"
    bus = runtime.rules_of(batch).buses[batch.bus]
    # One more event than the file has, so that the file ends at the end of its range.
    limits = Limits(had.read + 1, runtime.settings.event_max_size)
    arrived_at = _arrived_at(runtime, batch, file)
    with closing(runtime.open_source(bus)) as source:
        refuse_other_log(runtime, batch.runner, bus, source)
        checking = Checking(source, bus.source, limits, lambda: arrived_at)
        found = checking.next_file(had.partition, had.start, had.end, _other_identities(runtime, batch, file, made))
    # older versions did not record the last message
    has = found.detail if had.last is not None else structs.replace(found.detail, last=None)
    if has != had:
        return None
    return write_file(runtime.store, batch.bus, batch.planned_at, batch.batch_id, found.rows)


def _other_identities(runtime: Runtime, batch: Batch, file: BatchFile, made: Mapping[str, str]) -> set[bytes]:
    """Return the identities of the valid events in the batch's other landed files."""
    seen: set[bytes] = set()
    for other in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
        if other.key != file.key and other.path is not None:
            try:
                seen |= valid_identities(runtime.store, made.get(other.key, other.path))
            except StoreError:  # this file is lost too; the recorded counts show whether it was needed
                continue
    return seen


def _arrived_at(runtime: Runtime, batch: Batch, file: BatchFile) -> datetime:
    for routed in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
        if routed.path is None:
            continue
        try:
            table = read_table(runtime.store, routed.path, columns=["event_file", "arrived_at"])
        except StoreError:
            continue
        times = pc.unique(table.filter(pc.equal(table["event_file"], file.path))["arrived_at"]).to_pylist()
        if times:
            first: datetime = times[0]
            return first
    return batch.planned_at
