"""What a chunk has of an ordered target, shard by shard, as runs of its push."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from eventbridge.delivery import age_begins
from eventbridge.ledger.records import Batch, Chunk, Parked, Piece
from eventbridge.order import BLOCKED, REFERENCE_FIRST, is_marked, shard_of
from eventbridge.rule import Target as TargetRule
from eventbridge.stages.items import request_of
from eventbridge.stages.open_deliveries import PLACE_COLUMNS, place_of
from eventbridge.stages.ordered_item import OrderedItem, Shard
from eventbridge.stages.ordered_run import OrderedRun
from eventbridge.stages.outcome_rows import OutcomeRows
from eventbridge.stages.outcomes import Shown
from eventbridge.stages.workplace import Workplace
from eventbridge.store.parquet import read_rows

_COLUMNS = [
    "delivery_id", "arrived_at", "payload", "content_type", "headers", "order_key", "failure", "not_before",
    *PLACE_COLUMNS,
]  # fmt: skip


def ordered_runs(
    work: Workplace,
    batch: Batch,
    chunk: Chunk,
    pieces: Sequence[Piece],
    done: Mapping[bytes, Shown],
    spec: TargetRule,
    *,
    until: datetime,
    stop: threading.Event,
    rows: OutcomeRows,
) -> list[OrderedRun]:
    """Return a run for each shard of an ordered target that a chunk has deliveries of; they share its in-flight limit.

    Deliveries without an order key, routed before the target was ordered, are not among them.
    """
    items: dict[int, list[OrderedItem]] = defaultdict(list)
    failed: dict[int, list[OrderedItem]] = defaultdict(list)
    for item in _items(work, batch, pieces):
        seen = done.get(item.delivery_id)
        shard = shard_of(item.key)
        if seen is None or seen.verdict == "Unknown" or seen.reason in (BLOCKED, REFERENCE_FIRST):
            items[shard].append(item)
        elif seen.verdict == "RetryAt":
            failed[shard].append(item)
    gone = threading.Event()
    in_flight = max(1, spec.max_in_flight // max(1, len(items)))
    room = threading.Semaphore(spec.max_in_flight // in_flight)
    return [
        OrderedRun(
            Shard(work, batch, chunk, spec, pieces[0].rule, shard, gone, room),
            found,
            failed[shard],
            in_flight,
            until=until,
            stop=stop,
            rows=rows,
        )
        for shard, found in sorted(items.items())
    ]


def _items(work: Workplace, batch: Batch, pieces: Iterable[Piece]) -> Iterator[OrderedItem]:
    taken = {row.parked_id: row for row in work.ledger.parked_taken_by(batch.batch_id)}
    for piece in pieces:
        for row in read_rows(work.store, piece.file, piece.rows, columns=_COLUMNS).to_pylist():
            if row["order_key"] is not None:
                yield _item(piece, row, taken.get(piece.parked_id))


def _item(piece: Piece, row: dict[str, Any], parked: Parked | None) -> OrderedItem:
    return OrderedItem(
        delivery_id=row["delivery_id"],
        rule=piece.rule,
        target=piece.target,
        request=request_of(row),
        arrived_at=age_begins(row["arrived_at"], row["not_before"]),
        attempts=piece.attempts,
        held_seconds=piece.held_seconds,
        not_before=row["not_before"],
        key=row["order_key"],
        place=place_of(row),
        failure=row["failure"],
        note=parked.held if parked is not None and is_marked(parked.held) else "",
        reason=parked.reason if parked is not None else "",
    )
