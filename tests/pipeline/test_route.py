"""The stage route makes one delivery of each match, with the rules that the batch was planned with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pipeline.conftest import RULES
from pipeline.routing import buffered, deliveries, routed, wanted

from eventbridge.delivery.outstanding import ITEM_COLUMNS
from eventbridge.event.ids import Fingerprint, delivery_id
from eventbridge.model import rowset
from eventbridge.model.file_detail import Routed, RoutedSlice
from eventbridge.pipeline.ingest.buffer import Landing
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows
from eventbridge.streaming.routing import StreamingRouting

Order = Callable[..., bytes]


def test_every_match_is_one_delivery(site: Any, clock: Any, order: Order) -> None:
    """Each event is delivered once per target of each rule that matches it, and to no other."""
    site.publish(order(1, 500), order(2, 50), order(3, 101))
    clock.advance(5)
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    assert wanted(deliveries(runtime, batch_id)) == Counter(
        [("big", target, number) for target in ("crm", "note") for number in ("1", "3")]
        + [("everything", "archive", number) for number in ("1", "2", "3")]
    )


def test_a_delivery_says_where_it_comes_from(site: Any, clock: Any, order: Order) -> None:
    """A delivery row has the stable id, the rule and its version, the event's position, times and the payload."""
    site.publish(order(1, 500))
    published_at = clock()
    clock.advance(5)
    runtime, batch_id = buffered(site)
    (event_file,) = (file.path for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"))

    routed(runtime, batch_id)

    row = next(row for row in deliveries(runtime, batch_id) if row["target"] == "note")
    position = {name: row[name] for name in ("bus", "topic", "broker", "partition_id", "offset", "source", "event_id")}
    assert row["delivery_id"] == delivery_id("orders", "/shop", "1", "big", "note")
    assert row["rule_version"] == runtime.rule_set().rules["big"].version
    assert position == {
        "bus": "orders",
        "topic": "placed",
        "broker": "",
        "partition_id": 0,
        "offset": 0,
        "source": "/shop",
        "event_id": "1",
    }
    assert (row["published_at"], row["arrived_at"]) == (published_at, clock())
    assert (row["event_file"], row["event_row"]) == (event_file, 0)
    assert json.loads(row["payload"]) == {"order": "1"}
    assert (row["failure"], row["order_key"], row["not_before"]) == (None, None, None)


def test_the_row_of_the_event_is_the_row_in_its_file(site: Any, order: Order) -> None:
    """Malformed and duplicate rows are counted, so that event_row finds the event's own bytes."""
    site.publish(b"bad", order(1), order(1), order(2), key="one partition")
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    rows = deliveries(runtime, batch_id)
    assert [(row["event_id"], row["event_row"]) for row in rows] == [("1", 1), ("2", 3)]
    for row in rows:
        event = read_rows(runtime.store, row["event_file"], str(row["event_row"])).to_pylist()[0]
        assert event["event_id"] == row["event_id"]


@pytest.mark.parametrize("form", ["", ", transform: {form: JSONATA, value: data.id}", ", content_mode: binary"])
def test_a_delivery_passes_on_the_trace_of_its_event(site: Any, order: Order, form: str) -> None:
    """`traceparent` and `tracestate` are headers of every delivery, also of an event with half of a surrogate pair."""
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    target = f'{{type: http, url: "https://crm.example/x"{form}}}'
    site.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 1, start_at: earliest}}}\n"
        f"rules: {{all: {{bus: orders, pattern: {{}}, targets: {{crm: {target}}}}}}}\n"
    )
    site.publish(order(1, **traced), order(2, data={"id": "2", "text": "cut \ud83d"}, **traced), order(3))
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    found = {row["event_id"]: json.loads(row["headers"] or "{}") for row in deliveries(runtime, batch_id)}
    own = {number: {name: found[number].get(name) for name in traced} for number in found}
    assert own == {"1": traced, "2": traced, "3": dict.fromkeys(traced)}


def test_a_failed_transform_is_a_row_without_payload(site: Any, order: Order) -> None:
    """A failed transform is recorded in the delivery file, is in no chunk, and delays nothing else."""
    site.publish(order(1, 500, data={"amount": 500}), order(2, 500), key="one partition")
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    failed = [row for row in deliveries(runtime, batch_id) if row["failure"] is not None]
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert [(row["rule"], row["target"], row["event_id"], row["payload"]) for row in failed] == [
        ("big", "note", "1", None)
    ]
    assert "$.data.id" in failed[0]["failure"]
    assert isinstance(file.detail, Routed)
    assert file.detail.failed == {"big/note": 1}
    rows = read_rows(runtime.store, file.path or "", file.detail.failed_rows).to_pylist()
    assert [row["delivery_id"] for row in rows] == [row["delivery_id"] for row in failed]
    in_chunks = [
        row
        for chunk in runtime.ledger.chunks.list_for_batch(batch_id)
        for piece in chunk.pieces
        for row in rowset.decode(piece.rows)
    ]
    assert sorted(in_chunks) == [row for row in range(6) if row not in set(rowset.decode(file.detail.failed_rows))]


def test_deliveries_routed_in_memory_equal_those_of_a_delivery_file(site: Any, order: Order) -> None:
    """Ids, payloads, failures, headers and due times are equal, whether events come from a file or from the bus."""
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    later = RULES.replace("/tmp/never-written/archive.jsonl", "/tmp/x.jsonl, not_before: $.data.at", 1)
    site.write_rules(later.replace("pattern: {}", "pattern: {data: {at: [{exists: true}]}}", 1))
    at = {"amount": 1, "id": "5", "at": "2026-03-01T13:00:00Z"}
    bodies = [order(1, 500), b"bad", order(1, 500), order(3, 500, data={"amount": 500}), order(5, data=at)]
    site.publish(*bodies, *(order(number, 101, **traced) for number in (6, 7)), order(8, 50))
    runtime, batch_id = buffered(site)
    routed(runtime, batch_id)
    batch = runtime.ledger.batches.get(batch_id)
    rules = runtime.rules_of(batch)

    with closing(runtime.open_source(rules.buses["orders"])) as source:
        landing = Landing(runtime, batch, rules.buses["orders"], source)
        taken = [landing.take(part.partition, part.start, part.end) for part in runtime.ledger.batches.ranges(batch_id)]
        fresh = [event for each in taken for event in each.events]
        routing = StreamingRouting(runtime, batch, rules, ())

    assert sum(each.read for each in taken) == 8
    said = {row["delivery_id"]: row for row in deliveries(runtime, batch_id)}
    for reads in ([fresh], [[event] for event in fresh]):
        pieces = [piece for read in reads for piece in routing.pieces(read)]
        made = {row["delivery_id"]: (each.piece, row) for each in pieces for row in each.rows.to_pylist()}
        assert made.keys() == said.keys()
        for delivery, (piece, row) in made.items():
            assert (piece.rule, piece.target) == (said[delivery]["rule"], said[delivery]["target"])
            assert row == {name: said[delivery][name] for name in ITEM_COLUMNS}
    assert {each["failure"] is None for _, each in made.values()} == {True, False}
    assert any(each["headers"] for _, each in made.values())
    assert any(each["not_before"] for _, each in made.values())


def test_the_manifest_of_a_slice_adds_up(site: Any, order: Order) -> None:
    """A slice's manifest has the number of valid rows and, per target, the fingerprint of all its deliveries."""
    site.publish(order(1, 500, data={"amount": 500}), order(2, 500), order(2, 500), order(3, 1), key="one partition")
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    (file,) = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    detail = file.detail
    rows = deliveries(runtime, batch_id)
    expected = {
        f"{rule}/{target}": Fingerprint.from_ids(
            row["delivery_id"] for row in rows if (row["rule"], row["target"]) == (rule, target)
        )
        for rule, target in {(row["rule"], row["target"]) for row in rows}
    }
    assert isinstance(detail, RoutedSlice)
    assert (detail.rows_in, detail.reference_matched, file.rows) == (3, 0, len(rows))
    landed = runtime.ledger.files.list_for_batch(batch_id, "buffer")[0].path
    assert (detail.file, detail.row_from, detail.row_to) == (landed, 0, 4)
    assert detail.matched == expected
    assert [value.count for value in detail.matched.values()] == [2, 2, 3]


def test_later_calls_return_the_stored_list(site: Any, clock: Any, order: Order) -> None:
    """A routed batch is not routed again; a settled one or one past its deadline hands out nothing."""
    site.publish(order(1, 500))
    runtime, batch_id = buffered(site)
    first = routed(runtime, batch_id)
    files = runtime.ledger.files.list_for_batch(batch_id, "delivery")

    assert routed(runtime, batch_id) == first == [0, 1]
    assert runtime.ledger.files.list_for_batch(batch_id, "delivery") == files
    clock.advance(60)
    assert routed(runtime, batch_id) == []
    clock.advance(-60)
    runtime.ledger.settlement.begin(batch_id)
    assert routed(runtime, batch_id) == []


def test_a_batch_that_is_not_landed_is_left_alone(site: Any, order: Order) -> None:
    """Before the batch is buffered there is nothing to route."""
    site.publish(order(1))
    runtime: Runtime = site.runtime
    batch_id = listen(runtime, "orders") or ""

    assert routed(runtime, batch_id) == []
    assert runtime.ledger.batches.get(batch_id).state == "planned"


def test_nothing_matched_is_a_batch_without_chunks(site: Any, order: Order) -> None:
    """A batch that has only malformed messages is routed without a file or a chunk."""
    site.publish(b"bad", b"worse")
    runtime, batch_id = buffered(site)

    assert routed(runtime, batch_id) == []
    assert runtime.ledger.batches.get(batch_id).state == "routed"
    files = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert [(file.path, file.rows, getattr(file.detail, "rows_in", None)) for file in files] == [
        (None, 0, 0),
        (None, 0, 0),
    ]


def test_a_batch_is_routed_by_the_rules_it_was_planned_with(site: Any, order: Order) -> None:
    """A rule file that changes after listen applies from the next batch on."""
    site.publish(order(1))
    runtime, batch_id = buffered(site)
    site.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2}}}\n"
        "rules: {later: {bus: orders, pattern: {}, targets: {f: {type: file, path: /tmp/f}}}}\n"
    )

    routed(runtime, batch_id)

    assert {row["rule"] for row in deliveries(runtime, batch_id)} == {"everything"}
