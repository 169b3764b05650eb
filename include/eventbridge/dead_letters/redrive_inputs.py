"""Writes the input files of a redrive batch: requests as a delivery file, or events as a buffer file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from eventbridge.dead_letters.reader import DeadLetter
from eventbridge.event.json_document import parse_document
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import SLOW_LANE_POOL, SLOW_LANE_WEIGHT, Chunk, Piece
from eventbridge.policy.ordering import shard_of
from eventbridge.routing.pieces import UNORDERED, order_key
from eventbridge.rules import RuleSet
from eventbridge.runtime.batch_files import dead_letter_files, read_dead_letters
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout, schemas
from eventbridge.store.parquet import write_table
from eventbridge.store.schemas import ROW_GROUP_ROWS

_KEY = "redrive"
_SAME = (
    "delivery_id", "rule", "target", "rule_version", "bus", "topic", "broker", "partition_id", "offset", "source",
    "event_id",
)  # fmt: skip


@dataclass(frozen=True)
class RedriveInput:
    """The input file of a redrive batch: its record for the ledger, and its chunks, none if the batch is routed."""

    file: BatchFile
    chunks: tuple[Chunk, ...] = ()


def write_deliveries(runtime: Runtime, batch: Batch, dead_letters: Sequence[DeadLetter]) -> RedriveInput:
    """Write the requests of dead letters as a delivery file; return the file and its chunks.

    The age of the deliveries is measured from the time at which the batch was planned.
    """
    path = layout.deliveries(batch.planned_at, batch.batch_id, uuid.uuid4().hex, "000000")
    rules = runtime.rules_of(batch)
    rows = sorted((_delivery(batch, rules, dead_letter) for dead_letter in dead_letters), key=_order)
    write_table(runtime.store, path, pa.Table.from_pylist(rows, schema=schemas.DELIVERY))
    file = BatchFile(batch.batch_id, "delivery", _KEY, path, len(rows))
    return RedriveInput(file, tuple(_chunks(runtime, batch, path, rows)))


def write_events(runtime: Runtime, batch: Batch, dead_letters: Sequence[DeadLetter]) -> RedriveInput:
    """Write the events of dead letters as a buffer file; return the file, which has no chunks yet.

    The age of the events is measured from the time at which the batch was planned.
    """
    path = layout.buffer(batch.bus, batch.planned_at, batch.batch_id, uuid.uuid4().hex)
    rows = [_event(batch, dead_letter) for dead_letter in dead_letters]
    write_table(runtime.store, path, pa.Table.from_pylist(rows, schema=schemas.BUFFER), row_group_rows=ROW_GROUP_ROWS)
    return RedriveInput(BatchFile(batch.batch_id, "buffer", _KEY, path, len(rows)))


def newest(dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Return one dead letter for each delivery id: the last one, because the oldest come first."""
    return list({dead_letter.record["delivery_id"]: dead_letter for dead_letter in dead_letters}.values())


def is_redrive_input(batch: Batch, file: BatchFile) -> bool:
    """Return whether a file is the input of a redrive batch."""
    return batch.kind == "redrive" and file.key == _KEY


def rebuild(runtime: Runtime, batch: Batch, file: BatchFile) -> RedriveInput:
    """Write the input of a redrive batch again under another name, with the same rows from the same dead letters."""
    taken = {each.file: each.rows for each in runtime.ledger.redrives.list_taken_by(batch.batch_id)}
    dead_letters = [
        DeadLetter(path, row, record)
        for path in reversed(dead_letter_files(runtime))  # the oldest come first, as when it was planned
        if path in taken
        for row, record in zip(
            rowset.decode(taken[path]), read_dead_letters(runtime.store, path, taken[path]).to_pylist(), strict=True
        )
    ]
    write = write_events if file.kind == "buffer" else write_deliveries
    return write(runtime, batch, newest(dead_letters))


def _delivery(batch: Batch, rules: RuleSet, dead_letter: DeadLetter) -> dict[str, Any]:
    record = dead_letter.record
    target = rules.rules[record["rule"]].targets[record["target"]]
    return {name: record[name] for name in _SAME} | {
        "order_key": order_key(target, parse_document(record["event"]), record) if target.ordered else None,
        "not_before": None,
        "published_at": batch.planned_at,  # a new time, from which `deliver_within` is measured
        "arrived_at": batch.planned_at,
        # the file and row of the dead letter, which has the event and the earlier attempts
        "event_file": dead_letter.file,
        "event_row": dead_letter.row,
        "payload": record["request"],
        "content_type": record["request_content_type"],
        "headers": record["request_headers"],
        "failure": None,
    }


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    shard = UNORDERED if row["order_key"] is None else shard_of(row["order_key"])
    return (row["rule"], row["target"], shard, row["topic"], row["broker"], row["partition_id"], row["offset"])


def _event(batch: Batch, dead_letter: DeadLetter) -> dict[str, Any]:
    record = dead_letter.record
    return {name: record[name] for name in ("topic", "broker", "partition_id", "offset", "source", "event_id")} | {
        "message_id": "",
        "published_at": batch.planned_at,
        "arrived_at": batch.planned_at,
        "status": "valid",
        "reason": None,
        "type": parse_document(record["event"])["type"],  # only a valid event becomes a delivery, so it has a type
        "body": record["event"],
    }


def _chunks(runtime: Runtime, batch: Batch, path: str, rows: Sequence[dict[str, Any]]) -> Iterator[Chunk]:
    for number, piece in enumerate(_pieces(runtime, path, rows)):
        yield Chunk(
            batch_id=batch.batch_id,
            chunk_id=number,
            pool=SLOW_LANE_POOL,
            weight=SLOW_LANE_WEIGHT,
            pieces=(piece,),
            rows=piece.count,
            size=piece.size,
            handed_out=number < runtime.settings.batch_max_chunks,
            map_index=number if number < runtime.settings.batch_max_chunks else None,
        )


def _pieces(runtime: Runtime, path: str, rows: Sequence[dict[str, Any]]) -> Iterator[Piece]:
    """Yield pieces, each of one target and order shard and no larger than a chunk may be; the rows must be sorted."""
    most = runtime.chunk_sizes.small
    for (rule, target, _), of_target in groupby(enumerate(rows), key=lambda each: _order(each[1])[:3]):
        numbers: list[int] = []
        size = 0
        for number, row in of_target:
            more = len(row["payload"])
            if numbers and (len(numbers) == most.deliveries or size + more > most.size):
                yield Piece(path, rowset.encode(numbers), len(numbers), size, rule, target)
                numbers, size = [], 0
            numbers.append(number)
            size += more
        yield Piece(path, rowset.encode(numbers), len(numbers), size, rule, target)
