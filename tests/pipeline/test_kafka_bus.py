"""Tests the features that only a bus on Kafka has: headers, topics with an identity, and the product's own bus."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pipeline.broker_shop import deliver, delivered, publish, shop_on
from services.brokers import OnKafka
from services.kafka import Kafka, make_topics
from stored import dead_letters

from eventbridge.errors import OffsetGapError
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter

Order = Callable[..., bytes]


@pytest.fixture
def on_kafka(site: Any, kafka: Kafka, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three partitions."""
    return shop_on(site, OnKafka(kafka), tmp_path)


def test_events_come_in_every_form(on_kafka: Any, kafka: Kafka, order: Order, tmp_path: Path) -> None:
    """Events may be in the body, in headers, or in plain JSON with a mapping; others are dead letters with the reason.

    A tombstone is counted and is no dead letter; with the headers of an event it is an event without data.
    """
    on_kafka.write_rules(
        (on_kafka.folder / "rules" / "rules.yaml")
        .read_text()
        .replace("start_at: earliest", "start_at: earliest, mapping: {type: order.placed, source: /old, id: $.no}")
    )
    binary = [("ce_specversion", b"1.0"), ("ce_type", b"order.placed"), ("ce_source", b"/shop"), ("ce_id", b"b")]
    structured = [("content-type", b"application/cloudevents+json")]
    producer = Producer({"bootstrap.servers": kafka.servers})
    json_type = [("content-type", b"application/json")]
    producer.produce("orders", b'{"amount": 2000}', headers=[*binary, *json_type, ("ce_subject", None)])
    producer.produce("orders", None, headers=[*binary[:3], ("ce_id", b"no data")])
    producer.produce("orders", order("s", 2000), headers=structured)
    producer.produce("orders", b'{"no": 17, "amount": 2000}')
    producer.produce("orders", b'{"amount": 2000}')
    producer.produce("orders", None, b"17")
    producer.flush(10)
    deliver(on_kafka)

    entries = {dead_letter["detail"] for dead_letter in dead_letters(on_kafka.runtime)}
    assert delivered(tmp_path) == ["17", "b", "s"]
    assert {dead_letter.partition(":")[0] for dead_letter in entries} == {"mapping of id"}
    found = audit(on_kafka.runtime)
    counts = {name: found.events[name] for name in ("read", "valid", "malformed", "tombstone")}
    assert counts == {"read": 6, "valid": 4, "malformed": 1, "tombstone": 1}
    assert found.differences == ()


@pytest.mark.parametrize(
    ("choice", "counts"),
    [
        ("ignore", {"read": 3, "valid": 1, "malformed": 0, "tombstone": 2}),
        ("dead_letter", {"read": 3, "valid": 1, "malformed": 2, "tombstone": 0}),
        ("deliver", {"read": 3, "valid": 3, "malformed": 0, "tombstone": 0}),
    ],
)
def test_tombstones_become_what_the_bus_says(
    on_kafka: Any, kafka: Kafka, order: Order, tmp_path: Path, choice: str, counts: dict[str, int]
) -> None:
    """A tombstone is counted only, or a dead letter that names its key, or an event; each is accounted for."""
    (tmp_path / "big.jsonl").touch()
    on_kafka.write_rules(
        (on_kafka.folder / "rules" / "rules.yaml")
        .read_text()
        .replace("start_at: earliest", f"start_at: earliest, tombstones: {choice}")
        .replace("{type: [order.placed], data: {amount:", '{"$or": [{type: [kafka.tombstone]}, {data: {amount:')
        .replace("1000]}]}}", "1000]}]}}]}")
    )
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce("orders", None, "A-17", partition=1)
    producer.produce("orders", order("1", 2000), "A-18", partition=1)
    producer.produce("orders", None, b"\xff\x00", partition=1)
    producer.flush(10)
    deliver(on_kafka)

    found = audit(on_kafka.runtime)
    assert {name: found.events[name] for name in counts} == counts
    assert found.differences == ()
    events = [json.loads(line) for line in (tmp_path / "big.jsonl").read_text().splitlines()]
    tombstones = {each.pop("id"): each for each in events if each["type"] == "kafka.tombstone"}
    assert len(events) == len(tombstones) + 1
    details = sorted(each["detail"] for each in dead_letters(on_kafka.runtime))
    if choice == "deliver":
        assert sorted(tombstones) == ["orders-1-0", "orders-1-2"]
        assert tombstones["orders-1-0"]["source"] == "/kafka/orders"
        assert tombstones["orders-1-0"]["subject"] == "A-17"
        assert tombstones["orders-1-2"]["keybase64"] == "/wA="
        assert not [each for each in tombstones.values() if "data" in each or "time" not in each]
    else:
        assert tombstones == {}
    problem = "a message without a value (a tombstone), key"
    assert details == ([f"{problem} 'A-17'", f"{problem} /wA= (base64)"] if choice == "dead_letter" else [])


def test_a_recreated_topic_stops_the_runner(on_kafka: Any, kafka: Kafka, order: Order) -> None:
    """A recreated topic with as many messages stops the runner, because its identity differs."""
    publish(on_kafka, order("1"), order("2"))
    deliver(on_kafka)
    make_topics(kafka, "orders", partitions=3)
    publish(on_kafka, *(order(number) for number in range(9)))

    with pytest.raises(OffsetGapError, match="the bus was deleted or replaced"):
        deliver(on_kafka)


def test_the_products_own_bus_may_be_a_topic(on_kafka: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Operational events go to the topic that the rule files set for the bus `eventbridge`, and rules deliver them."""
    make_topics(kafka, "operations")
    source = {"type": "kafka", "connection": "shop_kafka", "topics": ["operations"], "start_at": "earliest"}
    target = {"type": "file", "path": str(tmp_path / "reported.jsonl")}
    rule = {"bus": "eventbridge", "pattern": {"type": ["delivery.dead_lettered"]}, "targets": {"log": target}}
    own = {"buses": {"eventbridge": {"source": source}}, "rules": {"report": rule}}
    (Path(on_kafka.runtime.settings.rules_folder) / "operations.yaml").write_text(json.dumps(own))
    publish(on_kafka, b"no event")
    deliver(on_kafka)

    deliver_until_idle(on_kafka.runtime, "eventbridge", InProcessRouter(on_kafka.runtime.store))

    (event,) = [json.loads(line) for line in (tmp_path / "reported.jsonl").read_text().splitlines()]
    assert (event["type"], event["data"]["reason"]) == ("delivery.dead_lettered", "malformed")
    assert not (on_kafka.runtime.settings.bus_folder / "eventbridge.sqlite").exists()
