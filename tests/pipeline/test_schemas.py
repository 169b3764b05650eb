"""Buffer learns schemas once, whichever process lands the batch, and changes are reported with the rules that they
affect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pipeline.delivering import operational_events
from pipeline.landing import InProcessLander

from eventbridge.api.page.findings import installation_findings
from eventbridge.pipeline.ingest import sharing
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.policy import schema as schema_decision
from eventbridge.rules import Bus
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.schemas import all_schemas, field_users, newest_changes, schemas_named
from eventbridge.views.status import status

SettleByLedger = Callable[[Runtime, str], None]

RULES = """
buses:
  orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}
rules:
  by-pattern:
    bus: orders
    pattern: {type: [order.placed], data: {customer: {city: [{prefix: B}]}}}
    targets: {log: {type: file, path: /tmp/never-written/a.jsonl}}
  by-transform:
    bus: orders
    pattern: {type: [{prefix: order.}]}
    targets:
      log:
        type: file
        path: /tmp/never-written/b.jsonl
        transform: {form: TEMPLATE, value: {city: $.data.customer.city}, template: '{"city": "${city}"}'}
  by-expression:
    bus: orders
    runner: apart
    pattern: {}
    targets:
      log: {type: file, path: /tmp/never-written/c.jsonl, transform: {form: JSONATA, value: data.customer.city}}
  by-another-field:
    bus: orders
    pattern: {data: {amount: [{numeric: [">", 1]}]}}
    targets: {log: {type: file, path: /tmp/never-written/d.jsonl}}
  of-another-type:
    bus: orders
    pattern: {type: [order.paid], data: {customer: {city: [Bern]}}}
    targets: {log: {type: file, path: /tmp/never-written/e.jsonl}}
"""


def an_order(number: int, **data: object) -> bytes:
    event = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "order.placed"}
    return json.dumps(event | {"data": data}).encode()


@pytest.fixture
def shop(site: Any, clock: Any, settle_by_ledger: SettleByLedger) -> Callable[..., None]:
    """Provide a function that lands events in a separate batch."""
    site.write_rules(RULES)
    number = 0

    def take(count: int, **data: object) -> None:
        nonlocal number
        site.publish(*[an_order(number + each, **data) for each in range(count)])
        number += count
        clock.advance(60)
        batch_id = listen(site.runtime, "orders") or ""
        buffer(site.runtime, batch_id)
        buffer(site.runtime, batch_id)  # twice, as in a repeated run
        settle_by_ledger(site.runtime, batch_id)

    return take


def reported(runtime: Runtime) -> list[tuple[str, str, list[str]]]:
    """Return the reported schema changes as event type, field and rules."""
    publish_operational_events(runtime)  # as commit does
    events = [event for event in operational_events(runtime) if event["type"].startswith("schema.")]
    return [(each["type"], each["data"].get("field", ""), each["data"]["rules"]) for each in events]


def test_fields_types_null_rates_and_examples_are_learned(site: Any, shop: Callable[..., None]) -> None:
    """For each field the schema has the share of events without a value, the types, and an example."""
    shop(6, amount=3, customer={"city": "Bern"}, tags=["a"], note=None)
    shop(2, amount=3.5)

    (found,) = schemas_named(site.runtime, "order.placed")
    fields = {each.path: (each.types, each.null_rate, each.example) for each in found.fields}
    assert found.sampled == 8
    assert {path: fields[path] for path in fields if path.startswith("data")} == {
        "data": (("object",), 0.0, None),
        "data.amount": (("integer", "number"), 0.0, "3"),
        "data.customer": (("object",), 0.25, None),
        "data.customer.city": (("string",), 0.25, '"Bern"'),
        "data.note": ((), 1.0, None),
        "data.tags": (("string[]",), 0.25, '"a"'),
    }


def test_an_event_with_half_a_character_counts(site: Any, shop: Callable[..., None]) -> None:
    """Half a surrogate pair, which UTF-8 cannot encode, is `?` in an example and an escape in a field's name."""
    shop(1, amount=3)
    shop(1, amount=4, text="a\ud800", **{"\ud800": 5})

    (found,) = schemas_named(site.runtime, "order.placed")
    examples = {each.path: each.example for each in found.fields}
    assert found.sampled == 2
    assert (examples["data.text"], examples['data."\\ud800"']) == ('"a?"', "5")


def test_a_change_names_the_rules_that_use_it(
    site: Any, shop: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new event type, a missing field that was always present, and a field with a new type are reported once."""
    monkeypatch.setattr(schema_decision, "LOST_AFTER", 5)
    city = ["by-expression", "by-pattern", "by-transform"]

    shop(6, amount=3, customer={"city": "Bern"})
    shop(1, amount=3, customer={"city": 3000})
    for _ in range(3):
        shop(3, amount=3)

    assert reported(site.runtime) == [
        ("schema.discovered", "", ["by-pattern", "by-transform"]),
        ("schema.field_changed", "data.customer.city", city),
        ("schema.field_lost", "data.customer", city),
    ]
    assert [(each.type, each.sampled, each.lost) for each in all_schemas(site.runtime)] == [("order.placed", 16, 2)]
    (found,) = schemas_named(site.runtime, "order.placed")
    users, more = field_users(site.runtime, found)
    assert (users["data.customer.city"], users["data.amount"], more) == (city, ["by-another-field"], False)
    (drift,) = installation_findings(site.runtime, status(site.runtime))
    assert (drift.name, drift.path, drift.state) == ("order.placed (orders)", "/schemas/order.placed", "changed")
    assert drift.why == "2 fields are missing in the newest events"


def test_the_workers_samples_count_like_ones_own(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that several workers land gives the same schemas as one that the stage lands itself."""
    monkeypatch.setattr(sharing, "LARGE_EVENTS", 1)
    site.write_rules(RULES)
    site.publish(*[an_order(number, amount=number) for number in range(20)])
    runtime = site.reopen(buffer_range_events=3)
    batch_id = listen(runtime, "orders") or ""

    def lander(bus: Bus) -> InProcessLander:
        return InProcessLander(runtime.store, bus, runtime.open_source)

    buffer(runtime, batch_id, lander)

    (found,) = schemas_named(runtime, "order.placed")
    assert found.sampled == 20
    assert {each.path: each.seen for each in found.fields}["data.amount"] == 20


def test_a_landing_that_dies_counts_and_reports_nothing_twice(site: Any, dying_everywhere: Any) -> None:
    """Wherever buffer dies, events count at most once, and the new type is reported once."""
    site.write_rules(RULES)
    site.publish(*[an_order(number, amount=1) for number in range(4)])
    listen(site.reopen(buffer_range_events=2), "orders")

    counts = set()
    for wreck in dying_everywhere(site, lambda runtime: buffer(runtime, listen(runtime, "orders") or "")):
        runtime = wreck.reopen(buffer_range_events=2)
        buffer(runtime, listen(runtime, "orders") or "")
        counts |= {each.sampled for each in all_schemas(runtime)}
        assert len([each for each in reported(runtime) if each[0] == "schema.discovered"]) == len(all_schemas(runtime))

    assert counts <= {1, 2, 3, 4}
    assert 4 in counts


def test_the_changes_of_a_field_are_kept_with_their_times(
    site: Any, shop: Callable[..., None], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that appears, gets another type, is lost and is back; a field of the first batch has no change."""
    monkeypatch.setattr(schema_decision, "LOST_AFTER", 2)
    for data in ({"amount": 1}, {"amount": 1, "note": "a"}, {"amount": 1, "note": 2}, {"amount": 1}, {"amount": 1}):
        shop(2, **data)
    (found,) = schemas_named(site.runtime, "order.placed")
    fields = {each.path: each for each in found.fields}
    changes = [(each.kind, each.types) for each in fields["data.note"].changes]

    assert fields["data.amount"].changes == ()
    assert (fields["data.amount"].first_at, fields["data.amount"].last_at) == (found.first_at, found.last_at)
    assert changes == [("added", ("string",)), ("changed", ("string", "integer")), ("lost", ("string", "integer"))]
    assert found.first_at < fields["data.note"].first_at < fields["data.note"].last_at < found.last_at  # type: ignore[operator]
    shop(2, amount=1, note=3)
    (found,) = schemas_named(site.runtime, "order.placed")
    (changed,) = [each.changed_at for each in all_schemas(site.runtime)]
    assert newest_changes(found, 1)[0][1].kind == "back"
    assert changed == found.last_at
