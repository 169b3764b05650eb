"""The deliveries of an ordered target in a chunk, shard by shard."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eventbridge.delivery.ordered_item import OrderedItem, Shard
from eventbridge.delivery.ordered_rounds import OrderedRounds
from eventbridge.delivery.outstanding import request_of
from eventbridge.delivery.run import Send, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.delivery.steps import Steps
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.deadline import deadline_of
from eventbridge.policy.ordering import BLOCKED, DEFERRED_MATCH_FIRST, PLACE_COLUMNS, is_marked, place_of, shard_of
from eventbridge.policy.response_to_outcome import age_begins
from eventbridge.rules import Target as TargetRule
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows

_COLUMNS = [
    "delivery_id", "arrived_at", "payload", "content_type", "headers", "order_key", "failure", "not_before",
    "published_at",
    *PLACE_COLUMNS,
]  # fmt: skip


class OrderedDeliveries:
    """The deliveries of one shard in a chunk; `failed` ones are only taken into account."""

    def __init__(
        self, shard: Shard, items: Sequence[OrderedItem], failed: Sequence[OrderedItem], in_flight: int
    ) -> None:
        self.total = len(items)
        self._shard = shard
        self._items = items
        self._failed = failed
        self._in_flight = in_flight

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send until all have a response or must wait, the budget is spent, or the run must end."""
        return OrderedRounds(run, send, self._shard, self._in_flight).deliver(self._items, self._failed)


def ordered_deliveries(
    runtime: Runtime,
    batch: Batch,
    chunk: Chunk,
    pieces: Sequence[Piece],
    done: Mapping[bytes, BestOutcome],
    spec: TargetRule,
) -> list[OrderedDeliveries]:
    """Return the deliveries of an ordered target in a chunk, by shard; the shards share its in-flight limit.

    Deliveries without an order key, routed before the target was ordered, are not included.
    """
    items: dict[int, list[OrderedItem]] = defaultdict(list)
    failed: dict[int, list[OrderedItem]] = defaultdict(list)
    for item in _items(runtime, batch, pieces, spec.deliver_within_seconds):
        seen = done.get(item.delivery_id)
        shard = shard_of(item.key)
        if seen is None or seen.verdict == "unknown" or seen.reason in (BLOCKED, DEFERRED_MATCH_FIRST):
            items[shard].append(item)
        elif seen.verdict == "retry_scheduled":
            failed[shard].append(item)
    gone = threading.Event()
    in_flight = max(1, spec.max_in_flight // max(1, len(items)))
    round_slots = threading.Semaphore(spec.max_in_flight // in_flight)
    return [
        OrderedDeliveries(
            Shard(runtime, batch, chunk, spec, pieces[0].rule, shard, gone, round_slots),
            found,
            failed[shard],
            in_flight,
        )
        for shard, found in sorted(items.items())
    ]


def _items(
    runtime: Runtime, batch: Batch, pieces: Iterable[Piece], within_seconds: float | None
) -> Iterator[OrderedItem]:
    taken = {row.pending_id: row for row in runtime.ledger.pending_taken_by(batch.batch_id)}
    for piece in pieces:
        for row in read_rows(runtime.store, piece.file, piece.rows, columns=_COLUMNS).to_pylist():
            if row["order_key"] is not None:
                made = _item(piece, row, taken.get(piece.pending_id))
                made.deadline_at = deadline_of(row["published_at"], within_seconds)
                yield made


def _item(piece: Piece, row: dict[str, Any], pending: PendingDeliveries | None) -> OrderedItem:
    return OrderedItem(
        delivery_id=row["delivery_id"],
        rule=piece.rule,
        target=piece.target,
        request=request_of(row),
        arrived_at=age_begins(row["arrived_at"], row["not_before"]),
        attempts=piece.attempts,
        on_hold_seconds=piece.on_hold_seconds,
        not_before=row["not_before"],
        key=row["order_key"],
        place=place_of(row),
        failure=row["failure"],
        note=pending.held if pending is not None and is_marked(pending.held) else "",
        reason=pending.reason if pending is not None else "",
    )
