"""Creates and reads copies of dead letters for the dead letter queues of their targets; each copy is a separate
delivery.

A copy is a pending delivery that refers to a row of a dead letter file. Reading the rows of a piece returns a copy like
any other delivery, with its own id, the queue as its target, and the dead letter as its JSON payload.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.event.ids import Fingerprint, batch_time, delivery_id, delivery_id_text
from eventbridge.event.json_document import write_document
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.pending import NO_CHUNK, PendingDeliveries
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.model import queue_of
from eventbridge.runtime.batch_files import read_dead_letters
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import schemas
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.protocol import Store

#: The reason of a new pending copy. A copy that fails is retried like any other delivery.
COPY = "dead_letter_queue"
#: The hold reason of a copy that its queue has finally refused. It is put on hold, because a copy never becomes a dead
#: letter itself.
QUEUE_EXHAUSTED = "dead letter queue exhausted"

_FOLDER = "dead_letters/"


def is_dead_letter(file: str) -> bool:
    """Return whether a file is a dead letter file, so that deliveries that refer to it are copies of dead letters."""
    return file.startswith(_FOLDER)


def read_deliveries(
    store: Store, file: str, rows: str, columns: Sequence[str], *, coded: Sequence[str] = ()
) -> pa.Table:
    """Return rows of a delivery file or, for a dead letter file, the copies of its rows.

    The columns are those of the DELIVERY schema. A copy has no event of its own, so `event_file` and `event_row` refer
    to the dead letter. For a delivery file, the string columns in `coded` are dictionary-encoded.
    """
    if not is_dead_letter(file):
        return read_rows(store, file, rows, columns=columns, coded=coded)
    records = read_dead_letters(store, file, rows).to_pylist()
    copies = [_copy(file, row, each) for row, each in zip(rowset.decode(rows), records, strict=True)]
    return pa.Table.from_pylist(copies, schema=schemas.DELIVERY).select(list(columns))


def pending_copies(runtime: Runtime, batch: Batch) -> list[PendingDeliveries]:
    """Return, as pending rows, copies of the batch's dead letters whose targets have a dead letter queue; they are due
    immediately."""
    rules = runtime.rules_of(batch)
    return [
        pending
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter")
        for pending in _file_copies(runtime, batch, rules, file)
    ]


def copy_fingerprints(runtime: Runtime, batch: Batch) -> dict[str, Fingerprint]:
    """Return the fingerprints of a batch's copies of dead letters, by `<rule>/<queue>`."""
    rules = runtime.rules_of(batch)
    ids: dict[str, list[bytes]] = defaultdict(list)
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"):
        if file.path is not None:
            columns = ["delivery_id", "rule", "target", "bus", "source", "event_id", "batch_id"]
            for record in read_table(runtime.store, file.path, columns=columns).to_pylist():
                if _queue_for(rules, record) is not None:
                    ids[f"{record['rule']}/{queue_of(record['target'])}"].append(copy_id(record))
    return {key: Fingerprint.from_ids(values) for key, values in ids.items()}


def _file_copies(runtime: Runtime, batch: Batch, rules: RuleSet, file: BatchFile) -> Iterator[PendingDeliveries]:
    if file.path is None:
        return
    table = read_table(runtime.store, file.path, columns=["delivery_id", "rule", "target", "event", "request"])
    sizes = [
        sum(size or 0 for size in both)
        for both in zip(*(pc.binary_length(table[name]).to_pylist() for name in ("event", "request")), strict=True)
    ]
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, record in enumerate(table.select(["delivery_id", "rule", "target"]).to_pylist()):
        if _queue_for(rules, record) is not None:
            rows[record["rule"], record["target"]].append(number)
    for (rule, target), numbers in rows.items():
        age = rules.rules[rule].destinations[queue_of(target)].retry.maximum_event_age_seconds
        yield PendingDeliveries(
            batch_id=batch.batch_id,
            settlement=int(file.key),  # unique per file, because it identifies the row
            chunk_id=NO_CHUNK,
            runner=rules.rules[rule].runner,
            rule=rule,
            target=queue_of(target),
            reason=COPY,
            attempts=0,
            due_at=batch.planned_at,
            files=((file.path, rowset.encode(numbers)),),
            count=len(numbers),
            size=sum(sizes[number] for number in numbers),
            expires_at=batch_time(batch.batch_id) + timedelta(seconds=age),
        )


def _queue_for(rules: RuleSet, record: dict[str, Any]) -> Target | None:
    rule = rules.rules.get(record["rule"])
    target = rule.targets.get(record["target"]) if rule is not None else None
    return target.dead_letter_queue if target is not None and record["delivery_id"] is not None else None


def copy_id(record: dict[str, Any]) -> bytes:
    """Return the delivery id of a dead letter's copy for a queue."""
    return delivery_id(
        record["bus"],
        record["source"],
        record["event_id"],
        record["rule"],
        queue_of(record["target"]),
        record["batch_id"],  # so that a delivery that is dead-lettered twice has two copies
    )


def _copy(file: str, row: int, record: dict[str, Any]) -> dict[str, Any]:
    kept = ("rule", "rule_version", "bus", "topic", "broker", "partition_id", "offset", "source", "event_id")
    return {name: record[name] for name in kept} | {
        "delivery_id": copy_id(record),
        "target": queue_of(record["target"]),
        "order_key": None,
        "not_before": None,
        "published_at": record["last_attempt_at"] or record["arrived_at"],
        "arrived_at": batch_time(record["batch_id"]),  # its age is measured from the dead letter's batch
        "event_file": file,
        "event_row": row,
        "payload": write_document(_plain(record | {"delivery_id": delivery_id_text(record["delivery_id"])})).encode(),
        "content_type": "application/json",
        "headers": None,
        "failure": None,
    }


def _plain(value: Any) -> Any:
    """Return a dead letter as JSON values: times as ISO 8601, bytes as UTF-8 text or else base64 after `base64:`."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(value).decode()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
