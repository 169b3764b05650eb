"""Computes the reconciliation of a batch: counts the rows of its files, and compares them with what the stages
recorded."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.delivery.queue_copies import COPY, copy_fingerprints, read_deliveries
from eventbridge.delivery.segments import segments
from eventbridge.event.fingerprints import Ids, fingerprint, fingerprints_by
from eventbridge.event.ids import Fingerprint
from eventbridge.model import row_vectors, rowset
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange, Routed, RoutedShare, RoutedSlice, UnroutableEvent
from eventbridge.model.outcome import SHADOW_FAILED, SHADOW_NOT_SENT, STATUS_RANK
from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.route.budgeted_rules import candidate_events
from eventbridge.pipeline.settle.settlement import batch_deliveries, settlements
from eventbridge.policy.reconciliation import Fingerprints, Reconciliation
from eventbridge.runtime.batch_files import read_taken_ids
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import codes_of, flag_column, ids_of, valid_of
from eventbridge.store.parquet import read_table


def reconciliation_of(runtime: Runtime, batch: Batch) -> Reconciliation:
    """Return the reconciliation of a settled or committed batch.

    Raises StoreError if a file cannot be read, and ReconciliationError if the unreadable file holds dead letters of
    another batch, which this batch redelivers.
    """
    numbers = _event_numbers(runtime, batch)
    statuses, delivered = _statuses(runtime, batch)
    dead, records, transform_failures = _dead_letters(runtime, batch)
    pending = runtime.ledger.pending.list_for_batch(batch.batch_id)
    shares = _shares(runtime, batch)
    return Reconciliation(
        **numbers,
        malformed_records=records["malformed"],
        unroutable_records=records["route_failed"],
        unproven=_unproven(runtime, batch, delivered),
        matched=_matched_fingerprints(runtime, batch),
        recorded=_recorded(runtime, batch),
        candidate_events={rule: _event_fingerprint(files) for rule, files in candidate_events(runtime, batch).items()},
        routed=add({share.rule: _event_fingerprint(share.done)} for share in shares),
        rejected=add({share.rule: _event_fingerprint(share.rejected)} for share in shares),
        admitted=_admitted(runtime, batch),
        deferred=add(
            {row.rule: _event_fingerprint(row.files)}
            for row in runtime.ledger.deferred_matches.list_for_batch(batch.batch_id)
        ),
        delivered=statuses["delivered"],
        pending_by_settlement=add([statuses["retry_scheduled"], statuses["unknown"]]),
        pending=pending_fingerprints(runtime, (row for row in pending if row.reason != COPY)),
        copies_due=copy_fingerprints(runtime, batch),
        copies=pending_fingerprints(runtime, (row for row in pending if row.reason == COPY)),
        dead_by_settlement=statuses["dead_lettered"],
        dead=dead,
        transform_failures=transform_failures,
    )


def _event_numbers(runtime: Runtime, batch: Batch) -> dict[str, int]:
    statuses: Counter[str] = Counter()
    gaps = 0
    routed = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
        if isinstance(file.detail, LandedRange):
            gaps += sum(end - start for start, end in file.detail.gaps)
        if file.path is not None:
            table = read_table(runtime.store, file.path, columns=["status"], coded=["status"])
            codes, names = codes_of(table["status"])
            statuses.update(dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True)))
    taken = sum(ids.count for ids in read_taken_ids(runtime, batch).values()) if batch.has_route_stage else 0
    taken += (
        sum(each.count for each in runtime.ledger.replays.list_taken_by(batch.batch_id))
        if batch.kind == "replay"
        else 0
    )
    return {
        "range_total": sum(part.end - part.start for part in runtime.ledger.batches.ranges(batch.batch_id)) + taken,
        "gaps": gaps,
        "read": statuses.total(),
        "malformed": statuses["malformed"],
        "duplicate": statuses["duplicate"],
        "tombstone": statuses["tombstone"],
        "valid": statuses["valid"],
        "rows_in": sum(file.detail.rows_in for file in routed if isinstance(file.detail, RoutedSlice)),
        "unroutable": sum(isinstance(file.detail, UnroutableEvent) for file in routed),
    }


def _matched_fingerprints(runtime: Runtime, batch: Batch) -> Fingerprints:
    if not batch.has_route_stage:
        return add(
            [
                pending_fingerprints(runtime, runtime.ledger.pending.list_taken_by(batch.batch_id)),
                read_taken_ids(runtime, batch),
            ]
        )
    return _named_fingerprints(runtime, batch)


def _recorded(runtime: Runtime, batch: Batch) -> Fingerprints:
    if not batch.has_route_stage:
        return _named_fingerprints(runtime, batch)
    files = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    return add(file.detail.matched for file in files if isinstance(file.detail, Routed))


def _named_fingerprints(runtime: Runtime, batch: Batch) -> Fingerprints:
    return add(fingerprints_by_target(table) for _, _, table in batch_deliveries(runtime, batch, ID_COLUMNS))


def _shares(runtime: Runtime, batch: Batch) -> list[RoutedShare]:
    files = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    return [file.detail for file in files if isinstance(file.detail, RoutedShare)]


def _admitted(runtime: Runtime, batch: Batch) -> Fingerprints:
    """Return, for each rule with a share, the fingerprint of the events for which it has deliveries, from the rule's
    delivery files."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
        if isinstance(file.detail, RoutedShare) and file.path is not None:
            table = read_table(runtime.store, file.path, columns=["event_file", "event_row"])
            event_rows = zip(table["event_file"].to_pylist(), table["event_row"].to_pylist(), strict=True)
            found[file.detail.rule].update(event_rows)
    return {rule: _event_row_fingerprint(event_rows) for rule, event_rows in found.items()}


def _event_fingerprint(files: Iterable[Sequence[str]]) -> Fingerprint:
    """Return the fingerprint of events, given as pairs of buffer file and row set."""
    return _event_row_fingerprint((file, row) for file, rows in files for row in rowset.decode(rows))


def _event_row_fingerprint(event_rows: Iterable[tuple[str, int]]) -> Fingerprint:
    names = (f"{file}#{row}" for file, row in event_rows)
    return Fingerprint.from_ids(hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names)


def _statuses(runtime: Runtime, batch: Batch) -> tuple[Mapping[str, Fingerprints], list[Ids]]:
    """Return the fingerprints of the settled deliveries by status, and the ids of those that must have been sent."""
    parts: dict[str, list[Fingerprints]] = {name: [] for name in STATUS_RANK}
    delivered = []
    for _, table in settlements(runtime, batch.batch_id, [*ID_COLUMNS, "status", "reason"]):
        codes, names = codes_of(table["status"])
        for number, name in enumerate(names):
            chosen = codes == number
            rows = table if chosen.all() else table.filter(flag_column(chosen))
            parts[name].append(fingerprints_by_target(rows))
            if name == "delivered":
                delivered.append(ids_of(rows["delivery_id"])[~_unsent_of_shadows(rows)])
    return {name: add(found) for name, found in parts.items()}, delivered


def _unsent_of_shadows(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows were settled without sending because their target is a shadow, so that no outcome proves
    them."""
    codes, names = codes_of(table["reason"])
    flags: npt.NDArray[np.bool_] = np.array([name in (SHADOW_FAILED, SHADOW_NOT_SENT) for name in [*names, ""]])[codes]
    return flags


def _unproven(runtime: Runtime, batch: Batch, delivered: Sequence[Ids]) -> int:
    """Return the number of deliveries that are settled as delivered without an outcome that proves it.

    Equal fingerprints show that every delivery is proven exactly once. Ids are looked up one by one only if the
    fingerprints differ.
    """
    proofs = []
    for file in segments(runtime, batch.batch_id):
        if file.path is not None:
            table = read_table(runtime.store, file.path, columns=["delivery_id", "outcome"], coded=["outcome"])
            codes, names = codes_of(table["outcome"])
            proven = np.array([name == "delivered" for name in [*names, ""]])[codes]
            proofs.append(ids_of(table["delivery_id"])[proven])
    if _sum(proofs) == _sum(delivered):
        return 0
    known = {raw.tobytes() for ids in proofs for raw in ids}
    return sum(raw.tobytes() not in known for ids in delivered for raw in ids)


def _sum(parts: Iterable[Ids]) -> Fingerprint:
    return sum(map(fingerprint, parts), start=Fingerprint())


def _dead_letters(runtime: Runtime, batch: Batch) -> tuple[Fingerprints, Counter[str], Counter[str]]:
    """Return the fingerprints of dead-lettered deliveries, and two counters: the events that never became a delivery,
    by reason, and the failed transforms, by `<rule>/<target>`.
    """
    found = []
    others: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"):
        if file.path is not None:
            table = read_table(
                runtime.store, file.path, columns=[*ID_COLUMNS, "reason"], coded=["rule", "target", "reason"]
            )
            is_delivery = valid_of(table["delivery_id"])
            found.append(fingerprints_by_target(table.filter(flag_column(is_delivery))))
            others.update(table.filter(flag_column(~is_delivery))["reason"].to_pylist())
            failed.update(_transform_failures(table))
    return add(found), others, failed


def _transform_failures(table: pa.Table) -> dict[str, int]:
    """Return how many dead letters of a file have the reason `transform_failed`, by `<rule>/<target>`."""
    codes, reasons = codes_of(table["reason"])
    if "transform_failed" not in reasons:
        return {}
    failed = table.filter(flag_column(codes == reasons.index("transform_failed")))
    return {target: each.count for target, each in fingerprints_by_target(failed).items()}


ID_COLUMNS = ["delivery_id", "rule", "target"]


def fingerprints_by_target(table: pa.Table) -> Fingerprints:
    """Return the fingerprints of a table's rows, by `<rule>/<target>`; the table has ID_COLUMNS."""
    rule_of, rules = codes_of(table["rule"])
    target_of, targets = codes_of(table["target"])
    found = fingerprints_by(rule_of * len(targets) + target_of, ids_of(table["delivery_id"]))
    return {f"{rules[pair // len(targets)]}/{targets[pair % len(targets)]}": each for pair, each in found.items()}


def pending_fingerprints(runtime: Runtime, pending: Iterable[PendingDeliveries]) -> Fingerprints:
    """Return the fingerprints of pending rows by `<rule>/<target>`; each delivery file is read only once."""
    by_file: dict[str, list[tuple[str, Rows]]] = defaultdict(list)
    for each in pending:
        for file, rows in each.files:
            by_file[file].append((f"{each.rule}/{each.target}", row_vectors.decode(rows)))
    return add(_row_fingerprints(runtime, file, rows) for file, rows in by_file.items())


def _row_fingerprints(runtime: Runtime, file: str, named: list[tuple[str, Rows]]) -> Fingerprints:
    targets = {target: number for number, target in enumerate(dict.fromkeys(target for target, _ in named))}
    # A row that occurs twice counts twice, so that the reconciliation reveals a duplicated delivery.
    rows = np.concatenate([its_rows for _, its_rows in named])
    groups = np.repeat([targets[target] for target, _ in named], [len(its_rows) for _, its_rows in named])
    wanted = np.unique(rows)
    table = read_deliveries(runtime.store, file, row_vectors.encode(wanted), ["delivery_id"])
    found = fingerprints_by(groups, ids_of(table["delivery_id"])[np.searchsorted(wanted, rows)])
    return {target: found[number] for target, number in targets.items() if number in found}


def add(parts: Iterable[Fingerprints]) -> dict[str, Fingerprint]:
    """Return the sums of fingerprints with the same key."""
    total: dict[str, Fingerprint] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total[key] + value if key in total else value
    return total
