"""Runs the write_dead_letters stage: settles the batch, then writes the complete record of every dead letter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.queue_copies import is_dead_letter
from eventbridge.delivery.segments import segments
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import LandedRange, UnroutableEvent
from eventbridge.model.outcome import SettledDelivery
from eventbridge.pipeline.settle.settlement import first_settlement, read_settled_as, records
from eventbridge.pipeline.settle.statuses import settle
from eventbridge.runtime.batch_files import naming_the_repair, read_dead_letters
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.operational_events import DeadLetterNews, publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout, schemas
from eventbridge.store.columns import codes_of, column_of, numbers_of
from eventbridge.store.parquet import read_rows, read_table, write_table

#: The maximum number of records per file. It bounds the stage's memory, because records hold payloads and responses.
_RECORDS_PER_FILE = 1_000

_NUMBERS_PER_SETTLEMENT = 10_000

_ATTEMPT_COLUMNS = [
    "delivery_id",
    "attempt",
    "sent",
    "started_at",
    "duration_ms",
    "outcome",
    "code",
    "error_class",
    "error",
    "response_head",
]

Record = dict[str, Any]


@instrumented("write_dead_letters")
def write_dead_letters(runtime: Runtime, batch_id: str) -> None:
    """Settle a routed batch, and write a record for each dead-lettered delivery and each malformed or unroutable event.

    The stage does nothing before the batch is routed or after it is committed; running it again writes the same files.
    Raises ReconciliationError for a file that cannot be read.
    """
    with naming_the_repair(batch_id, "settled"):
        batch = settle(runtime, runtime.ledger.batches.get(batch_id))
        if batch.state == "settling":
            _write(runtime, batch)
            publish_operational_events(runtime)


def dead_letters_again(
    runtime: Runtime, batch: Batch, files: Sequence[BatchFile]
) -> Iterator[tuple[BatchFile, pa.Table]]:
    """Yield dead letter files of a settled batch with their content, rebuilt one file at a time.

    A file whose content cannot be derived has no rows. Raises StoreFileMissing or StoreFileDamaged for unreadable
    inputs, and ReconciliationError for unreadable dead letters of another batch that this one redelivered.
    """
    wanted = {file.key: file for file in files}
    for key, rows in _numbered(runtime, batch, first_settlement(runtime, batch)) if wanted else ():
        if file := wanted.pop(key, None):
            yield file, pa.Table.from_pylist(rows, schema=schemas.DEAD_LETTER)
    yield from ((file, schemas.DEAD_LETTER.empty_table()) for file in wanted.values())


def _write(runtime: Runtime, batch: Batch) -> None:
    batch_id = batch.batch_id
    news = DeadLetterNews(batch)
    known = {file.key for file in runtime.ledger.files.list_for_batch(batch_id, "dead_letter")}
    first = first_settlement(runtime, batch)
    for key, rows in _numbered(runtime, batch, first):
        news.add(rows)
        if key in known:
            continue
        path = layout.dead_letters(batch.planned_at, batch_id, int(key))
        # the content depends only on the settlement, so any other process writes the same file
        write_table(runtime.store, path, pa.Table.from_pylist(rows, schema=schemas.DEAD_LETTER), create=True)
        runtime.ledger.files.record(BatchFile(batch_id, "dead_letter", key, path, len(rows)), "settling", first)
    # Events are queued before the batch can be committed, so a task that dies here is repeated and queues them again.
    if events := news.events():
        runtime.ledger.operational_events.queue(events)


def _numbered(runtime: Runtime, batch: Batch, first: str) -> Iterator[tuple[str, list[Record]]]:
    """Yield the key and the rows of each file; both depend only on the settlement, so they are the same in every
    process."""
    # A batch that was settled again has other dead letters, so their files need new names.
    for number, rows in enumerate(_parts(runtime, batch), _NUMBERS_PER_SETTLEMENT * int(first)):
        yield f"{number:06d}", rows


def _parts(runtime: Runtime, batch: Batch) -> Iterator[list[Record]]:
    tables = [
        table for _, table in read_settled_as(runtime, batch.batch_id, ["dead_lettered"], schemas.SETTLEMENT.names)
    ]
    if tables:
        dead = _sort(pa.concat_tables(tables))
        attempts = _Attempts(runtime, batch)
        for start in range(0, dead.num_rows, _RECORDS_PER_FILE):
            some = list(records(dead.slice(start, _RECORDS_PER_FILE)))
            yield _records(runtime, batch, some, attempts.attempts(some))
    yield from _malformed(runtime, batch)
    yield from _unroutable(runtime, batch)


def _sort(settled: pa.Table) -> pa.Table:
    """Return settled deliveries ordered by file and row."""
    file_of, files = codes_of(settled["file"])
    order = np.lexsort((numbers_of(settled["row"]), np.argsort(np.argsort(files))[file_of]))
    return settled.take(column_of(order, pa.int64()))


def _records(
    runtime: Runtime, batch: Batch, dead: Sequence[SettledDelivery], attempts: Mapping[bytes, list[Record]]
) -> list[Record]:
    made = []
    for settled, delivery in zip(dead, _delivery_rows(runtime, dead), strict=True):
        tries = [*delivery["before"], *attempts.get(settled.delivery_id, [])]
        sent = [entry["started_at"] for entry in tries]
        made.append(
            {
                **{name: delivery[name] for name in ("delivery_id", "rule", "rule_version", "bus", "target", "topic")},
                **{name: delivery[name] for name in ("broker", "partition_id", "offset", "source", "event_id")},
                "event": delivery["event"],
                "request": delivery["payload"],
                "request_content_type": delivery["content_type"],
                "request_headers": delivery["headers"],
                "reason": settled.reason,
                "detail": settled.detail,
                "attempts": tries,
                "arrived_at": delivery["arrived_at"],
                "first_attempt_at": min(sent, default=None),
                "last_attempt_at": max(sent, default=None),
                "batch_id": batch.batch_id,
            }
        )
    return made


def _delivery_rows(runtime: Runtime, dead: Sequence[SettledDelivery]) -> list[Record]:
    """Return the delivery rows of settled deliveries, in order, with the event under `event` and earlier attempts under
    `before`.

    Only redriven deliveries have earlier attempts, which come from their dead letters.
    """
    rows = _rows_of(runtime, [(settled.file, settled.row) for settled in dead], None)
    landed = [row for row in rows if not _is_redriven(row)]
    redriven = [row for row in rows if _is_redriven(row)]
    bodies = _rows_of(runtime, [_event_row(row) for row in landed], ["body"])
    letters = _rows_of(runtime, [_event_row(row) for row in redriven], ["event", "attempts"])
    events = {_event_row(row): {"event": body["body"], "before": []} for row, body in zip(landed, bodies, strict=True)}
    for row, letter in zip(redriven, letters, strict=True):
        events[_event_row(row)] = {"event": letter["event"], "before": letter["attempts"]}
    return [row | events[_event_row(row)] for row in rows]


def _event_row(row: Record) -> tuple[str, int]:
    return row["event_file"], row["event_row"]


def _is_redriven(row: Record) -> bool:
    """Return whether a delivery was made from a dead letter, which holds its event and its earlier attempts."""
    return is_dead_letter(str(row["event_file"]))


def _rows_of(runtime: Runtime, event_rows: list[tuple[str, int]], columns: list[str] | None) -> list[Record]:
    by_file: dict[str, set[int]] = defaultdict(set)
    for file, number in event_rows:
        by_file[file].add(number)
    found: dict[tuple[str, int], Record] = {}
    for file, numbers in by_file.items():
        read = read_dead_letters if is_dead_letter(file) else read_rows
        table = read(runtime.store, file, rowset.encode(numbers), columns)
        found |= {(file, number): row for number, row in zip(sorted(numbers), table.to_pylist(), strict=True)}
    return [found[event_row] for event_row in event_rows]


class _Attempts:
    """Finds the attempts at a batch's dead-lettered deliveries, in its own segments and in those of earlier batches."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._lineage: dict[int, set[tuple[str, int]]] = {
            chunk.chunk_id: {(batch.batch_id, chunk.chunk_id)}.union(*(each.lineage for each in chunk.pieces))
            for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)
        }
        self._segments: dict[tuple[str, frozenset[int]], list[str]] = {}

    def attempts(self, dead: Sequence[SettledDelivery]) -> dict[bytes, list[Record]]:
        """Return all attempts at some deliveries by delivery id, oldest first."""
        wanted = pa.array([settled.delivery_id for settled in dead], type=pa.binary(16))
        chunks = {settled.chunk_id for settled in dead if settled.chunk_id is not None}
        found: dict[bytes, list[Record]] = defaultdict(list)
        chunks_of: dict[str, set[int]] = defaultdict(set)
        for batch_id, chunk_id in set().union(*(self._lineage.get(chunk_id, set()) for chunk_id in chunks)):
            chunks_of[batch_id].add(chunk_id)
        for batch_id in sorted(chunks_of):
            for path in self._paths(batch_id, frozenset(chunks_of[batch_id])):
                table = read_table(self._runtime.store, path, columns=_ATTEMPT_COLUMNS)
                for row in table.filter(pc.is_in(table["delivery_id"], value_set=wanted)).to_pylist():
                    if row.pop("sent"):
                        found[row.pop("delivery_id")].append({"number": row.pop("attempt")} | row)
        for tries in found.values():
            tries.sort(key=lambda entry: (entry["started_at"], entry["number"]))
        return found

    def _paths(self, batch_id: str, chunk_ids: frozenset[int]) -> list[str]:
        if (batch_id, chunk_ids) not in self._segments:
            files = segments(self._runtime, batch_id, chunk_ids)
            self._segments[batch_id, chunk_ids] = [file.path for file in files if file.path is not None]
        return self._segments[batch_id, chunk_ids]


def _malformed(runtime: Runtime, batch: Batch) -> Iterator[list[Record]]:
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
        if file.path is None or not isinstance(file.detail, LandedRange) or not file.detail.malformed:
            continue
        table = read_table(runtime.store, file.path)
        table = table.filter(pc.equal(table["status"], "malformed"))
        for start in range(0, table.num_rows, _RECORDS_PER_FILE):
            rows = table.slice(start, _RECORDS_PER_FILE).to_pylist()
            yield [_event_record(batch, row, "malformed", row["reason"]) for row in rows]


def _unroutable(runtime: Runtime, batch: Batch) -> Iterator[list[Record]]:
    files = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    found = [file.detail for file in files if isinstance(file.detail, UnroutableEvent)]
    for start in range(0, len(found), _RECORDS_PER_FILE):
        some = found[start : start + _RECORDS_PER_FILE]
        rows = _rows_of(runtime, [(event.file, event.row) for event in some], None)
        yield [_event_record(batch, row, "route_failed", event.error) for event, row in zip(some, rows, strict=True)]


def _event_record(batch: Batch, row: Record, reason: str, detail: str) -> Record:
    """Return the record of an event that never became a delivery."""
    return {
        **{
            name: row[name]
            for name in ("topic", "broker", "partition_id", "offset", "source", "event_id", "arrived_at")
        },
        "bus": batch.bus,
        "event": row["body"],
        "reason": reason,
        "detail": detail,
        "attempts": [],
        "batch_id": batch.batch_id,
    }
