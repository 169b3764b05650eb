"""Reads the books of a batch out of its files: nothing here trusts a counter kept on the side."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eventbridge import rowset
from eventbridge.commit import Books, Fingerprints
from eventbridge.identity import Fingerprint
from eventbridge.ledger.records import Batch, Parked
from eventbridge.stages.costly_rules import survivors
from eventbridge.stages.letter_copies import COPY, copy_fingerprints, read_deliveries
from eventbridge.stages.outcomes import segments
from eventbridge.stages.redrive_files import taken_ids
from eventbridge.stages.settle import batch_deliveries, settlement_rows
from eventbridge.stages.workplace import Workplace
from eventbridge.store.parquet import read_table

_ID_COLUMNS = ["delivery_id", "rule", "target"]


def books_of(work: Workplace, batch: Batch) -> Books:
    """Return the books of a settled or committed batch.

    Raises StoreError if a file cannot be read; BooksError for a file of dead letters that it took from another batch.
    """
    numbers = _event_numbers(work, batch)
    verdicts, unproven = _verdicts(work, batch)
    dead, records = _dead_letters(work, batch)
    parked = work.ledger.parked_of(batch.batch_id)
    return Books(
        **numbers,
        malformed_records=records["Malformed"],
        unroutable_records=records["RouteFailed"],
        unproven=unproven,
        matched=_matched(work, batch),
        recorded=_recorded(work, batch),
        survived={rule: _of_events(files) for rule, files in survivors(work, batch).items()},
        routed=_routed(work, batch, "done"),
        turned_down=_routed(work, batch, "turned_down"),
        admitted=_admitted(work, batch),
        referred=_sum(*({row.rule: _of_events(row.files)} for row in work.ledger.references_of(batch.batch_id))),
        delivered=verdicts["Delivered"],
        parked_by_settlement=_sum(verdicts["RetryAt"], verdicts["Unknown"]),
        parked=_of_parked(work, (row for row in parked if row.reason != COPY)),
        copies_due=copy_fingerprints(work, batch),
        copies=_of_parked(work, (row for row in parked if row.reason == COPY)),
        dead_by_settlement=verdicts["DeadLettered"],
        dead=dead,
    )


def _event_numbers(work: Workplace, batch: Batch) -> dict[str, int]:
    statuses: Counter[str] = Counter()
    gaps = 0
    routed = work.ledger.files(batch.batch_id, "delivery")
    for file in work.ledger.files(batch.batch_id, "buffer"):
        gaps += sum(end - start for start, end in file.detail["gaps"])
        if file.path is not None:
            statuses.update(read_table(work.store, file.path, columns=["status"])["status"].to_pylist())
    taken = sum(ids.count for ids in taken_ids(work, batch).values()) if batch.routes else 0
    return {
        "range_total": sum(part.end - part.start for part in work.ledger.ranges(batch.batch_id)) + taken,
        "gaps": gaps,
        "read": statuses.total(),
        "malformed": statuses["malformed"],
        "duplicate": statuses["duplicate"],
        "valid": statuses["valid"],
        "rows_in": sum(file.detail["rows_in"] for file in routed),
        "unroutable": sum(len(file.detail.get("unroutable", ())) for file in routed),
    }


def _matched(work: Workplace, batch: Batch) -> Fingerprints:
    if not batch.routes:
        return _sum(_of_parked(work, work.ledger.parked_taken_by(batch.batch_id)), taken_ids(work, batch))
    return _fingerprints(row for _, _, table in batch_deliveries(work, batch, _ID_COLUMNS) for row in table.to_pylist())


def _recorded(work: Workplace, batch: Batch) -> Fingerprints:
    if not batch.routes:
        return _fingerprints(
            row for _, _, table in batch_deliveries(work, batch, _ID_COLUMNS) for row in table.to_pylist()
        )
    parts = [
        {key: Fingerprint.from_list(value) for key, value in file.detail["matched"].items()}
        for file in work.ledger.files(batch.batch_id, "delivery")
    ]
    return _sum(*parts)


def _routed(work: Workplace, batch: Batch, which: str) -> Fingerprints:
    """Return the events that costly rules have routed, or of them turned down, as their shares' records say."""
    shares = [file.detail["share"] for file in work.ledger.files(batch.batch_id, "delivery") if "share" in file.detail]
    return _sum(*({share["rule"]: _of_events(share.get(which, ()))} for share in shares))


def _admitted(work: Workplace, batch: Batch) -> Fingerprints:
    """Return the events that costly rules have deliveries of, as their delivery files say."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for file in work.ledger.files(batch.batch_id, "delivery"):
        if "share" in file.detail and file.path is not None:
            table = read_table(work.store, file.path, columns=["event_file", "event_row"])
            places = zip(table["event_file"].to_pylist(), table["event_row"].to_pylist(), strict=True)
            found[file.detail["share"]["rule"]].update(places)
    return {rule: _of_places(places) for rule, places in found.items()}


def _of_events(files: Iterable[Sequence[str]]) -> Fingerprint:
    """Return the fingerprint of events by where they lie: pairs of buffer file and row set."""
    return _of_places((file, row) for file, rows in files for row in rowset.decode(rows))


def _of_places(places: Iterable[tuple[str, int]]) -> Fingerprint:
    names = (f"{file}#{row}" for file, row in places)
    return Fingerprint.of(hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names)


def _verdicts(work: Workplace, batch: Batch) -> tuple[Mapping[str, Fingerprints], int]:
    """Return the fingerprints of each verdict, and how many Delivered no outcome proves."""
    by_verdict: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in settlement_rows(work, batch.batch_id, [*_ID_COLUMNS, "verdict"]):
        by_verdict[row["verdict"]].append(row)
    proven = _proven(work, batch)
    unproven = sum(row["delivery_id"] not in proven for row in by_verdict["Delivered"])
    names = ("Delivered", "DeadLettered", "RetryAt", "Unknown")
    return {name: _fingerprints(by_verdict[name]) for name in names}, unproven


def _proven(work: Workplace, batch: Batch) -> set[bytes]:
    proven: set[bytes] = set()
    for file in segments(work, batch.batch_id):
        if file.path is not None:
            table = read_table(work.store, file.path, columns=["delivery_id", "outcome"])
            pairs = zip(table["delivery_id"].to_pylist(), table["outcome"].to_pylist(), strict=True)
            proven.update(delivery_id for delivery_id, outcome in pairs if outcome == "Delivered")
    return proven


def _dead_letters(work: Workplace, batch: Batch) -> tuple[Fingerprints, Counter[str]]:
    """Return the fingerprints of dead deliveries, and how many records there are, by reason, of what never was one."""
    rows = []
    others: Counter[str] = Counter()
    for file in work.ledger.files(batch.batch_id, "dead_letter"):
        if file.path is None:
            continue
        for row in read_table(work.store, file.path, columns=[*_ID_COLUMNS, "reason"]).to_pylist():
            if row["delivery_id"] is None:
                others[row["reason"]] += 1
            else:
                rows.append(row)
    return _fingerprints(rows), others


def _of_parked(work: Workplace, parked: Iterable[Parked]) -> Fingerprints:
    """Return the fingerprints of parked rows, the delivery ids read from the delivery files they point at."""
    by_place: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in parked:
        for file, rows in row.files:
            by_place[row.rule, row.target][file].extend(rowset.decode(rows))
    result = {}
    for (rule, target), files in by_place.items():
        total = Fingerprint()
        for file, numbers in files.items():
            total += _ids_at(work, file, numbers)
        result[f"{rule}/{target}"] = total
    return result


def _ids_at(work: Workplace, file: str, numbers: list[int]) -> Fingerprint:
    wanted = sorted(set(numbers))
    ids = read_deliveries(work.store, file, rowset.encode(wanted), ["delivery_id"])["delivery_id"].to_pylist()
    by_row = dict(zip(wanted, ids, strict=True))
    # a row that is named twice counts twice: a doubled delivery must show in the books
    return Fingerprint.of(by_row[number] for number in numbers)


def _fingerprints(rows: Iterable[Mapping[str, Any]]) -> dict[str, Fingerprint]:
    ids: dict[str, list[bytes]] = defaultdict(list)
    for row in rows:
        ids[f"{row['rule']}/{row['target']}"].append(row["delivery_id"])
    return {key: Fingerprint.of(values) for key, values in ids.items()}


def _sum(*parts: Fingerprints) -> dict[str, Fingerprint]:
    total: dict[str, Fingerprint] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, Fingerprint()) + value
    return total
