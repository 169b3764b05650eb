"""Tests the features that only a bus on RocketMQ has: properties, and topics without an identity."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pipeline.broker_shop import deliver, delivered, publish, shop_on
from services.brokers import OnRocketmq
from services.rocketmq import RocketMQ, make_topics
from stored import dead_letters

from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.errors import OffsetGapError
from eventbridge.repair.audit import audit

Order = Callable[..., bytes]


@pytest.fixture
def on_rocketmq(site: Any, rocketmq: RocketMQ, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three partitions."""
    return shop_on(site, OnRocketmq(rocketmq), tmp_path)


def test_events_come_in_every_form(on_rocketmq: Any, rocketmq: RocketMQ, order: Order, tmp_path: Path) -> None:
    """Events may be in the body, in headers or in plain JSON with a mapping; others become dead letters."""
    on_rocketmq.write_rules(
        (on_rocketmq.folder / "rules" / "rules.yaml")
        .read_text()
        .replace("start_at: earliest", "start_at: earliest, mapping: {type: $header.TAGS, source: /old, id: $.no}")
    )
    attributes = {"CE_specversion": "1.0", "CE_type": "order.placed", "CE_source": "/shop", "CE_id": "b"}
    attributes["CE_contenttype"] = "application/json"
    with closing(rocketmq.client()) as client:
        partition = client.queues("orders")[0]
        client.send(partition, OutgoingMessage(b'{"amount": 2000}', attributes))
        client.send(partition, OutgoingMessage(order("s", 2000), {"CE_contenttype": "application/cloudevents+json"}))
        client.send(partition, OutgoingMessage(b'{"no": 17, "amount": 2000}', {"TAGS": "order.placed"}))
        client.send(partition, OutgoingMessage(b'{"amount": 2000}', {"TAGS": "order.placed"}))
        client.send(partition, OutgoingMessage(b'{"no": 18, "amount": 2000}'))
        client.send(partition, OutgoingMessage(b"no JSON"))
    deliver(on_rocketmq)

    entries = {dead_letter["detail"] for dead_letter in dead_letters(on_rocketmq.runtime)}
    assert delivered(tmp_path) == ["17", "b", "s"]
    assert {dead_letter.partition(":")[0] for dead_letter in entries} == {"mapping of id", "mapping of type", "data"}
    assert audit(on_rocketmq.runtime).differences == ()


def test_a_recreated_topic_stops_the_runner(on_rocketmq: Any, rocketmq: RocketMQ, order: Order, tmp_path: Path) -> None:
    """A recreated topic with as many messages stops the runner; a runner with a new name reads all of them."""
    publish(on_rocketmq, *(order(f"old{number}", 2000) for number in range(9)))
    deliver(on_rocketmq)
    deliver(on_rocketmq)
    make_topics(rocketmq, "orders", partitions=3)
    publish(on_rocketmq, order("new0", 2000))
    with pytest.raises(OffsetGapError, match="truncated or replaced"):
        deliver(on_rocketmq)
    publish(on_rocketmq, *(order(f"new{number}", 2000) for number in range(1, 10)))
    with pytest.raises(OffsetGapError, match="recreated"):
        deliver(on_rocketmq)
    rules = on_rocketmq.folder / "rules" / "rules.yaml"
    on_rocketmq.write_rules(rules.read_text().replace("    bus: orders\n", "    bus: orders\n    runner: new\n"))
    deliver(on_rocketmq, "new")

    assert delivered(tmp_path) == [f"new{number}" for number in range(10)] + [f"old{number}" for number in range(9)]
