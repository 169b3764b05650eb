"""Stage commit: proves the books, writes the manifest, moves the offsets, and only then tells the bus."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from eventbridge.commit import Books, Fingerprints, differences
from eventbridge.delivery_window import windows_of
from eventbridge.errors import BooksError, BusError, OffsetGapError
from eventbridge.identity import Fingerprint, delivery_id_text
from eventbridge.ledger.records import Batch, BatchFile, FileKind, Reference
from eventbridge.stages.books import books_of
from eventbridge.stages.bus_guard import refuse_other_log
from eventbridge.stages.operations import publish_operational_events
from eventbridge.stages.ordered_parking import gives_nothing_up
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.stages.settle import (
    MATCHED_COLUMNS,
    Places,
    batch_deliveries,
    failed_row,
    failure_reasons,
    first_settlement,
    publish_settlement,
    settlement_rows,
    verdict_row,
)
from eventbridge.stages.unreadable import naming_the_repair
from eventbridge.stages.workplace import Workplace
from eventbridge.store import layout

log = logging.getLogger(__name__)

#: What makes up a batch, in the order in which it is made.
FILE_KINDS: tuple[FileKind, ...] = ("buffer", "delivery", "outcome", "settlement", "dead_letter")
#: Delivery ids an error names before it says how many more there are.
_IDS_SHOWN = 20


def commit(work: Workplace, batch_id: str) -> bool:
    """Commit a settled batch and return whether it is committed now; before that stage it does nothing.

    Raises BooksError, and moves nothing, when the books do not balance or a file cannot be read.
    A bus that cannot be told is an alarm, no failure: the ledger is the truth, the next listen repeats it.
    """
    batch = work.ledger.batch(batch_id)
    if batch.state == "settling":
        _prove_and_commit(work, batch)
        batch = work.ledger.batch(batch_id)
    publish_operational_events(work)
    if batch.state != "committed":
        return False
    if batch.kind == "normal" and batch.bus_committed_at is None:
        tell_bus(work, batch)
    return True


def tell_bus(work: Workplace, batch: Batch) -> bool:
    """Commit the ledger's offsets of a batch's runner on the bus itself; False and an alarm if the bus refuses."""
    bus = work.rules_of(batch).buses[batch.bus]
    try:
        source = work.open_source(bus)
        try:
            refuse_other_log(work, batch.runner, bus, source)
            source.commit(batch.runner, work.ledger.committed_offsets(batch.runner))
        finally:
            source.close()
    except (BusError, OffsetGapError) as error:
        log.error("ALARM the bus %s did not take the offsets of batch %s: %s", batch.bus, batch.batch_id, error)
        return False
    work.ledger.mark_bus_committed(batch.batch_id)
    return True


def _prove_and_commit(work: Workplace, batch: Batch) -> None:
    first = first_settlement(work, batch)
    with naming_the_repair(batch.batch_id, "committed"):
        _close_deficit(work, batch, first)
        books = books_of(work, batch)
    wrong = differences(books)
    if wrong:
        work.ledger.prove_settled_by(batch.batch_id, first)  # else what was read is of two settlements
        raise BooksError(
            f"batch {batch.batch_id} cannot be committed, its books do not balance: "
            + "; ".join(map(str, wrong))
            + ". Nothing was committed; clear the tasks write_dead_letters and schedule_retries of this run, "
            + f"and if it stays, run `eventbridge audit --batch {batch.batch_id}`"
        )
    _write_manifest(work, batch, books, first)
    work.ledger.commit_batch(batch.batch_id, batch.runner, work.ledger.ranges(batch.batch_id), work.clock(), first)


def _close_deficit(work: Workplace, batch: Batch, first: str) -> None:
    """Give Unknown, in a supplement settlement, to exactly the deliveries that the settlement does not name.

    A delivery it names twice, or that the batch never had, is a surplus: raises BooksError with the ids.
    """
    settled = Counter((row["file"], row["row"]) for row in settlement_rows(work, batch.batch_id, ["file", "row"]))
    missing = []
    places = Places(work.ledger.chunks(batch.batch_id))
    now = work.clock()
    reasons = failure_reasons(work, batch)
    rules = work.rules_of(batch)
    windows = windows_of(rules)
    for file, numbers, table in batch_deliveries(work, batch, MATCHED_COLUMNS):
        for number, row in zip(numbers, table.to_pylist(), strict=True):
            if settled[file, number] > 0:
                settled[file, number] -= 1
                continue
            chunk, attempts = places.of(file, number)
            if row["failure"] is not None:
                kept = now if gives_nothing_up(rules, row["rule"], row["target"]) else None
                missing.append(failed_row(row, file, number, reasons.get((file, number)), kept, chunk, attempts))
                continue
            window = windows.get((row["rule"], row["target"]))
            missing.append(verdict_row(row, file, number, chunk, attempts, None, None, now, window))
    surplus = +settled
    if surplus:
        raise _surplus(work, batch, set(surplus))
    if missing:
        log.error("ALARM the settlement of batch %s misses %d deliveries: parked", batch.batch_id, len(missing))
        publish_settlement(
            work, batch, int(work.ledger.files(batch.batch_id, "settlement")[-1].key) + 1, missing, first
        )
        schedule_retries(work, batch.batch_id)


def _surplus(work: Workplace, batch: Batch, places: set[tuple[str, int]]) -> BooksError:
    rows = settlement_rows(work, batch.batch_id, ["file", "row", "delivery_id"])
    ids = sorted({delivery_id_text(row["delivery_id"]) for row in rows if (row["file"], row["row"]) in places})
    more = f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
    return BooksError(
        f"batch {batch.batch_id} cannot be committed: its settlement names deliveries that the batch does not have, "
        f"or names them twice: {', '.join(ids[:_IDS_SHOWN])}{more}. Nothing was committed. "
        f"`eventbridge batch repair {batch.batch_id} --dry-run` shows how it is settled anew"
    )


def _write_manifest(work: Workplace, batch: Batch, books: Books, first: str) -> None:
    path = layout.manifest(batch.planned_at, batch.batch_id)
    manifest = manifest_of(work, batch, books)
    text = json.dumps(manifest, indent=1, sort_keys=True).encode()
    if work.store.create(path, text) or (written := work.store.get(path)) == text:
        return
    work.ledger.prove_settled_by(batch.batch_id, first)
    if _settlements(written)[:1] != manifest["files"]["settlement"][:1]:
        work.store.put(path, text)  # of who was about to commit, or died then, before the batch was settled anew
        return
    raise BooksError(
        f"{path} exists and says something else than the books of batch {batch.batch_id}: "
        "two ledgers write into one store. Stop the other one before this runner goes on"
    )


def _settlements(manifest: bytes) -> list[str]:
    """Return the settlements that a manifest names; none if it is damaged."""
    try:
        return list(json.loads(manifest)["files"]["settlement"])
    except (ValueError, KeyError, TypeError):
        return []


def manifest_of(work: Workplace, batch: Batch, books: Books) -> dict[str, Any]:
    """Return the audit of record of a batch, as JSON: what it took, from where, and what became of it."""
    taken = work.ledger.parked_taken_by(batch.batch_id)
    taken_references = work.ledger.references_taken_by(batch.batch_id)
    files = {kind: work.ledger.files(batch.batch_id, kind) for kind in FILE_KINDS}
    manifest = {
        "batch_id": batch.batch_id,
        "kind": batch.kind,
        "runner": batch.runner,
        "bus": batch.bus,
        "rule_set": batch.rule_set,
        "planned_at": batch.planned_at.isoformat(),
        "parents": sorted({row.batch_id for row in taken} | {row.batch_id for row in taken_references}),
        "taken": sorted(
            [row.batch_id, row.chunk_id, row.rule, row.target, row.attempts, list(map(list, row.files))]
            for row in taken
        ),
        "ranges": [[*part.queue, part.start, part.end] for part in work.ledger.ranges(batch.batch_id)],
        "gaps": [
            [file.detail["topic"], file.detail["broker"], file.detail["queue_id"], start, end]
            for file in files["buffer"]
            for start, end in file.detail["gaps"]
        ],
        "files": {kind: [file.path for file in found if file.path] for kind, found in files.items()},
        "counts": {
            name: getattr(books, name)
            for name in ("range_total", "gaps", "read", "malformed", "duplicate", "valid", "rows_in", "unroutable")
        },
        "fingerprints": {name: _as_json(getattr(books, name)) for name in ("matched", "delivered", "parked", "dead")},
    }
    # Named only if there are any: a manifest of a version that knew none must still be what the audit makes of it.
    if_any = {
        "matching": _matching(files["delivery"]),
        "taken_references": _references(taken_references),
        "taken_dead_letters": [[each.file, each.rows] for each in work.ledger.redriven_by(batch.batch_id)],
        "references": _references(work.ledger.references_of(batch.batch_id)),
        "turned_down": _as_json(books.turned_down),
    }
    return manifest | {name: value for name, value in if_any.items() if value}


def _matching(files: Iterable[BatchFile]) -> dict[str, int]:
    """Return what compiled code did not do alone in a batch, or not at one go; see `SliceResult`."""
    # Slices that an older version routed count no `clears`, and its manifests name nothing of this.
    slices = [file.detail for file in files if "clears" in file.detail]
    counts = {
        name: sum(detail[name] for detail in slices) for name in ("reference_matched", "reference_rendered", "clears")
    }
    return {name: count for name, count in counts.items() if count}


def _references(found: Iterable[Reference]) -> list[list[Any]]:
    return sorted([row.batch_id, row.rule, row.reason, list(map(list, row.files))] for row in found)


def _as_json(fingerprints: Fingerprints) -> dict[str, list[int]]:
    return {key: value.as_list() for key, value in sorted(fingerprints.items()) if value != Fingerprint()}
