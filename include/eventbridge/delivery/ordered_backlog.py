"""Reads the open deliveries of an ordered target that are not part of a push, but for which the push's deliveries may
have to wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import Routed
from eventbridge.model.partition import Position
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.ordering import (
    POSITION_COLUMNS,
    Open,
    delivery_on_hold_at,
    is_marked,
    may_block,
    position_of,
    spans_of,
)
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows

#: The maximum number of deliveries whose keys are read. If more deliveries of a shard may precede those of the push,
#: the push sends nothing from the shard, because the backlog comes first.
_MAX_KEYS_READ = 100_000


def open_deliveries(
    runtime: Runtime, batch: Batch, target: tuple[str, str], shard: int, going: Sequence[Position], own: set[int]
) -> Open:
    """Return the open deliveries of a shard, except those of the pending rows `own`, which belong to the push.

    Pending rows that other batches have taken are included. `going` are the positions of the push's deliveries. The
    caller must hold the lease of the shard.
    """
    found = Open()
    spans = spans_of(going)
    waiting = []
    for row in runtime.ledger.order.open_rows(*target, shard):
        if row.pending_id not in own and (_is_head(row) or may_block(row.order_spans, spans)):
            waiting.append(row)
    if sum(row.count for row in waiting) > _MAX_KEYS_READ:
        found.close_shard(shard)
    else:
        for key, position, head in _keys(runtime, waiting):
            found.add(key, position, head=head)
    for position in _deferred_events(runtime, batch, target[0]):
        found.add_deferred_match(position)
    _add_failed(runtime, batch, target, found)
    return found


def _is_head(row: PendingDeliveries) -> bool:
    """Return whether a row's deliveries are the first of their keys. This is true of all deliveries that were tried, or
    that an operator has decided on."""
    return row.attempts > 0 or delivery_on_hold_at(row.hold_reason) is not None or is_marked(row.hold_reason)


def _keys(runtime: Runtime, waiting: Iterable[PendingDeliveries]) -> Iterator[tuple[str, Position, bool]]:
    files: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for row in waiting:
        for file, rows in row.files:
            files[file, _is_head(row)].extend(rowset.decode(rows))
    for (file, head), numbers in files.items():
        table = read_rows(runtime.store, file, rowset.encode(sorted(set(numbers))), [*POSITION_COLUMNS, "order_key"])
        for row in table.to_pylist():
            if row["order_key"] is not None:
                yield row["order_key"], position_of(row), head


def _deferred_events(runtime: Runtime, batch: Batch, rule: str) -> Iterator[Position]:
    """Yield the positions of the first events, by partition, of a rule's deferred matches, except those that this batch
    took.

    The ledger has no positions for a deferred match that was recorded before its rule was ordered, so each file of such
    a match is read.
    """
    spans, without_spans = runtime.ledger.deferred_matches.waiting_spans(rule, but=batch.batch_id)
    yield from (Position(span.partition, span.first) for span in spans)
    for deferred_match in without_spans:
        for file, rows in deferred_match.files:
            first = next(iter(rowset.decode(rows)), None)
            if first is not None:  # a buffer file holds one partition in its order
                table = read_rows(runtime.store, file, rowset.encode([first]), POSITION_COLUMNS)
                yield position_of(table.to_pylist()[0])


def _add_failed(runtime: Runtime, batch: Batch, target: tuple[str, str], found: Open) -> None:
    """Add the deliveries of a batch whose transform failed, if their target has `errors_tolerance: none`."""
    rule, name = target
    if not batch.has_route_stage or runtime.rules_of(batch).rules[rule].targets[name].errors_tolerance != "none":
        return
    for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
        if file.path is None or not isinstance(file.detail, Routed) or f"{rule}/{name}" not in file.detail.failed:
            continue
        columns = [*POSITION_COLUMNS, "order_key", "rule", "target"]
        for row in read_rows(runtime.store, file.path, file.detail.failed_rows, columns).to_pylist():
            if (row["rule"], row["target"]) == target and row["order_key"] is not None:
                found.add(row["order_key"], position_of(row), head=True)
