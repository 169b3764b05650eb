"""Route gives the same rows as parsing, matching and rendering each event with the reference code."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from pipeline.routing import buffered, deliveries, routed

from eventbridge.errors import TransformFailed
from eventbridge.event.cloudevent import parse_event
from eventbridge.event.ids import delivery_id, delivery_id_text
from eventbridge.matching import Matcher, Matches, compile_rules
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import matches
from eventbridge.matching.scan.texts import Texts
from eventbridge.model.batch import BatchFile
from eventbridge.model.file_detail import RoutedSlice
from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.pipeline.route.stage import slices_of
from eventbridge.repair.audit import audit
from eventbridge.routing import program, slice
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.store.parquet import read_table
from eventbridge.transform import Scope, compile_transform

Order = Callable[..., bytes]

RULES = """
buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      binary: {type: http, url: "https://x.example/", content_mode: binary}
      data: {type: http, url: "https://x.example/", content_mode: data}
      structured: {type: file, path: /tmp/f}
      must: {type: file, path: /tmp/f, transform: {form: JSONPATH, value: $.data.id, missing: error}}
  large:
    bus: orders
    priority: high
    pattern: {data: {amount: [{numeric: [">", 100]}]}}
    targets:
      text:
        type: file
        path: /tmp/f
        transform:
          form: TEMPLATE
          value: {id: $.data.id}
          template: "at ${eb.ingested_at} ${eb.delivery_id}: ${id:-nobody} of ${eb.rule}"
  none:
    bus: orders
    pattern: {source: [nowhere]}
    targets: {f: {type: file, path: /tmp/f}}
"""

FEW = """
buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}
rules:
  few:
    bus: orders
    pattern: {data: {n: [0, 1, 2, 3, 4, 5, 6, 7, 8], l: {a: [{exists: false}], b: [1]}}}
    targets: {lines: {type: file, path: LINES}}
"""

TAKEN = ("topic", "broker", "partition_id", "offset", "source", "event_id", "published_at", "arrived_at")


def by_hand(runtime: Runtime, batch_id: str) -> list[dict[str, Any]]:
    """Return the expected delivery rows of a batch, in any order."""
    rows = []
    for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"):
        for number, landed in enumerate(read_table(runtime.store, file.path or "").to_pylist()):
            if landed["status"] != "valid":
                continue
            event = parse_event(landed["body"], max_bytes=1 << 20)
            for rule in runtime.rule_set().enabled().values():
                if not matches(parse_pattern(rule.pattern), event.document):
                    continue
                for target in rule.targets.values():
                    raw = delivery_id("orders", event.source, event.id, rule.name, target.name)
                    scope = Scope(rule.name, "orders", target.name, delivery_id_text(raw), landed["arrived_at"])
                    made: dict[str, Any] = dict.fromkeys(("payload", "content_type", "headers", "failure"))
                    try:
                        rendered = compile_transform(target.transform, content_mode=target.content_mode).render(
                            event, scope
                        )
                        headers = json.dumps(dict(rendered.headers)) if rendered.headers else None
                        made |= {"payload": rendered.payload, "content_type": rendered.content_type, "headers": headers}
                    except TransformFailed as failure:
                        made["failure"] = str(failure)
                    rows.append(
                        {name: landed[name] for name in TAKEN}
                        | {"delivery_id": raw, "rule": rule.name, "target": target.name, "rule_version": rule.version}
                        | {"bus": "orders", "order_key": None, "not_before": None}
                        | {"event_file": file.path, "event_row": number}
                        | made
                    )
    return rows


def publish_all_sorts(site: Any, order: Order) -> None:
    """Publish events that compiled code renders, returns or fails, and messages that are not events."""
    twice = b'{"specversion":"1.0","id":"t","source":"/shop","type":"t","data":{"id":1,"id":"a\\u0062","amount":101}}'
    site.publish(
        *[order(number, number * 30) for number in range(8)],
        b"bad",
        twice,
        order(3, 90),
        order("half", 200, data={"id": "\ud800", "amount": 200}),
        order("without", 200, data={"amount": 1e9}),
    )


@pytest.mark.parametrize("run", [1, 100_000])
def test_every_row_is_as_by_hand(site: Any, order: Order, monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    """Every column of every delivery is as expected, even if targets are routed one at a time."""
    monkeypatch.setattr(slice, "_RUN", run)
    site.write_rules(RULES)
    publish_all_sorts(site, order)
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    def by_id(row: dict[str, Any]) -> Any:
        return row["delivery_id"]

    assert sorted(deliveries(runtime, batch_id), key=by_id) == sorted(by_hand(runtime, batch_id), key=by_id)


def slices_routed(runtime: Runtime, batch_id: str) -> list[RoutedSlice]:
    """Return the recorded slices of a batch."""
    files = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    return [file.detail for file in files if isinstance(file.detail, RoutedSlice)]


def test_events_handed_back_by_compiled_code_are_counted(site: Any, order: Order) -> None:
    """Binary mode, a key twice and half a surrogate pair in text come from the renderers; nothing was matched so."""
    site.write_rules(RULES)
    publish_all_sorts(site, order)
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    details = slices_routed(runtime, batch_id)
    binary, keys_twice, half = 11, 1, 1
    assert sum(detail.reference_rendered for detail in details) == binary + keys_twice + half
    assert sum(detail.reference_matched for detail in details) == 0
    assert sum(detail.failed.get("all/must", 0) for detail in details) == 1
    assert sum(detail.failed.get("large/text", 0) for detail in details) == 1


def test_no_event_that_landed_is_lost_to_the_matcher(site: Any, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that buffer accepted and the compiled matcher rejects is matched by the reference matcher."""

    def refuse(self: Matcher, texts: Texts) -> Matches:
        count = len(texts.start)
        nothing = np.zeros(0, np.int32)
        return Matches(np.zeros(count + 1, np.int64), nothing, np.arange(count, dtype=np.int64), 0)

    monkeypatch.setattr(Matcher, "match_texts", refuse)
    site.write_rules(RULES)
    publish_all_sorts(site, order)
    runtime, batch_id = buffered(site)

    routed(runtime, batch_id)

    found = [(row["delivery_id"], row["event_row"]) for row in deliveries(runtime, batch_id)]
    assert sorted(found) == sorted((row["delivery_id"], row["event_row"]) for row in by_hand(runtime, batch_id))
    details = slices_routed(runtime, batch_id)
    assert sum(detail.reference_matched for detail in details) == sum(detail.rows_in for detail in details) == 11


def test_the_manifest_counts_what_the_compiled_matcher_did_not_do_alone(
    site: Any, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest has the number of events that the reference matcher decided and of dropped classes, unless 0."""
    monkeypatch.setattr(program, "compile_rules", partial(compile_rules, class_rows=1))
    site.write_rules(FEW.replace("LINES", str(site.folder / "lines")))
    elements = [{"b": 1}, {"a": 2}]
    bodies = [{"n": n, "l": {"b": 1}} for n in range(9)] + [{"n": 1, "l": elements}]
    site.publish(*[order(number, data=data) for number, data in enumerate(bodies)], key="k")
    runtime = site.reopen()

    deliver_batch(runtime, "orders", InProcessRouter(runtime.store), Stop())

    (path,) = runtime.store.list("manifests/")
    counts = json.loads(runtime.store.get(path))["matching"]
    assert counts["reference_matched"] == 1
    assert counts["clears"] > 1
    assert "reference_rendered" not in counts
    assert audit(runtime).differences == ()


@pytest.mark.parametrize(
    ("rows", "largest"),
    [(2_000, 2_000), (8_000, 2_000), (8_001, 4_000), (47_000, 4_000), (50_000, 6_000), (1_000_000, 20_000)],
)
def test_slices_grow_with_the_batch(rows: int, largest: int) -> None:
    """A small batch has small slices, so that two workers share it; a backlog has large ones to save their cost."""
    files = [BatchFile("b", "buffer", f"{key}", "x", min(20_000, rows - key)) for key in range(0, rows, 20_000)]
    slices = slices_of(files)

    assert max(each.row_to - each.row_from for each in slices) == largest
    assert sum(each.row_to - each.row_from for each in slices) == rows
    assert all(each.row_from % 2_000 == 0 for each in slices)
