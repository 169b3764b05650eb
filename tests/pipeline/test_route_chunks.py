"""The stage route divides deliveries into pieces and chunks, in the order of the bus and within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from pipeline.routing import buffered, deliveries, routed

from eventbridge.model import rowset
from eventbridge.model.file_detail import Routed, RoutedPiece
from eventbridge.pipeline.route.stage import route
from eventbridge.policy.chunking import PoolSlots
from eventbridge.routing.job import RouteJob, Slice, SliceResult
from eventbridge.routing.task import InProcessRouter
from eventbridge.store.parquet import read_rows

Order = Callable[..., bytes]


def test_rows_are_sorted_and_pieces_are_runs(site: Any, order: Order) -> None:
    """A delivery file is sorted by pool, rule, target and offset, so that a chunk's rows are adjacent."""
    site.publish(*[order(number, 50 * number) for number in range(6)], key="one partition")
    runtime, batch_id = buffered(site, chunk_max_deliveries=2)

    routed(runtime, batch_id)

    rows = deliveries(runtime, batch_id)
    rules = runtime.rule_set().rules
    order_of_rows = [(rules[row["rule"]].pool_name, row["rule"], row["target"], row["offset"]) for row in rows]
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert order_of_rows == sorted(order_of_rows)
    assert isinstance(file.detail, Routed)
    sizes = [sum(len(rows[row]["payload"]) for row in rowset.decode(piece.rows)) for piece in file.detail.pieces]
    assert list(file.detail.pieces) == [
        RoutedPiece("eventbridge.high", 750, "big", "crm", "0-1", 2, sizes[0]),
        RoutedPiece("eventbridge.high", 750, "big", "crm", "2", 1, sizes[1]),
        RoutedPiece("eventbridge.high", 750, "big", "note", "3-4", 2, sizes[2]),
        RoutedPiece("eventbridge.high", 750, "big", "note", "5", 1, sizes[3]),
        RoutedPiece("eventbridge.medium", 500, "everything", "archive", "6-7", 2, sizes[4]),
        RoutedPiece("eventbridge.medium", 500, "everything", "archive", "8-9", 2, sizes[5]),
        RoutedPiece("eventbridge.medium", 500, "everything", "archive", "10-11", 2, sizes[6]),
    ]


def test_a_piece_holds_a_bounded_number_of_bytes(site: Any, order: Order) -> None:
    """Pieces are also limited in payload bytes; a payload larger than a chunk is a separate piece."""
    site.publish(*[order(n, filler="x" * size) for n, size in enumerate((400, 400, 3_000, 400))], key="one partition")
    runtime, batch_id = buffered(site, chunk_max_size="1200")

    routed(runtime, batch_id)

    (file,) = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert isinstance(file.detail, Routed)
    assert [piece.rows for piece in file.detail.pieces] == ["0-1", "2", "3"]


def test_a_chunk_follows_the_order_of_the_bus(site: Any, order: Order, small_slices: None) -> None:
    """A target's pieces are in its chunks by partition and offset, whichever slice was finished first."""
    site.publish(*[order(number) for number in range(20)])

    class Backwards:
        def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
            return InProcessRouter(runtime.store).route_slices(job, slices[::-1])

    runtime, batch_id = buffered(site)
    route(runtime, batch_id, Backwards())

    (chunk,) = runtime.ledger.chunks.list_for_batch(batch_id)
    offsets = [
        (row["partition_id"], row["offset"])
        for piece in chunk.pieces
        for row in read_rows(runtime.store, piece.file, piece.rows).to_pylist()
    ]
    assert offsets == [(partition, offset) for partition in range(2) for offset in range(10)]


def test_a_file_target_has_one_chunk_where_an_http_target_has_two(site: Any, order: Order) -> None:
    """The size of a chunk depends on the type of its targets."""
    site.write_rules("""
buses:
  orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      archive: {type: file, path: /tmp/never-written/archive.jsonl}
      crm: {type: http, url: https://crm.example/hook}
""")
    site.publish(*[order(number) for number in range(5_200)])
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    in_chunks: dict[str, Counter[int]] = {"archive": Counter(), "crm": Counter()}
    for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
        for piece in chunk.pieces:
            in_chunks[piece.target][chunk.chunk_id] += piece.count
    assert [len(in_chunks["archive"]), len(in_chunks["crm"])] == [1, 2]
    assert in_chunks["archive"].total() == in_chunks["crm"].total() == 5_200
    assert max(in_chunks["crm"].values()) <= 5_000


def test_chunks_are_published_with_a_deadline(site: Any, clock: Any, order: Order) -> None:
    """Route returns the chunks to push in map index order, and the batch then has a deadline."""
    site.publish(*[order(number, 500) for number in range(4)])
    runtime, batch_id = buffered(site, batch_max_chunks=1)
    clock.advance(3)

    handed_out = routed(runtime, batch_id)

    batch = runtime.ledger.batches.get(batch_id)
    chunks = runtime.ledger.chunks.list_for_batch(batch_id)
    assert (batch.state, batch.deadline_at) == ("routed", clock() + timedelta(seconds=60))
    assert handed_out == [0]
    assert [(c.chunk_id, c.pool, c.weight, c.rows, c.handed_out, c.map_index, c.state) for c in chunks] == [
        (0, "eventbridge.high", 750, 8, True, 0, "new"),
        (1, "eventbridge.medium", 500, 4, False, None, "new"),
    ]
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    assert sum(piece.count for piece in pieces) == 12
    assert {(piece.attempts, piece.lineage, piece.pending_id) for piece in pieces} == {(0, (), None)}


def test_pools_and_targets_decide_what_is_handed_out(site: Any, order: Order) -> None:
    """The deliveries of a closed pool or disabled target are on hold; those of a degraded one go to the slow lane."""
    site.publish(order(1, 500))
    runtime, batch_id = buffered(site)
    runtime.ledger.targets.set_status("big", "crm", "disabled", "410")
    runtime.ledger.targets.set_status("big", "note", "degraded", "slow")

    handed_out = routed(runtime, batch_id, pools={"eventbridge.medium": PoolSlots(0, 0)})

    found = {
        chunk.pieces[0].target: (chunk.handed_out, chunk.hold_reason)
        for chunk in runtime.ledger.chunks.list_for_batch(batch_id)
    }
    assert handed_out == []
    assert found == {
        "crm": (False, "target disabled"),
        "note": (False, ""),
        "archive": (False, "pool closed"),
    }
