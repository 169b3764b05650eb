"""A bus on RocketMQ from the command line: publish, deliver, and what `status` says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from services.rocketmq import RocketMQ, make_topics

RULES = """
buses:
  orders: {{source: {{type: rocketmq, connection: shop, topics: [orders], start_at: earliest}}}}
rules:
  big-orders:
    bus: orders
    pattern: {{data: {{amount: [{{numeric: [">", 1000]}}]}}}}
    targets:
      log: {{type: file, path: {folder}/big.jsonl}}
      copy: {{type: rocketmq, connection: shop, topic: copies}}
"""


def test_from_a_rule_file_to_the_targets(
    shop: Any, eventbridge: Callable[..., Any], rocketmq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published to a topic, delivered to a file and a topic, and the lag is zero."""
    make_topics(rocketmq, "orders", "copies")
    shop.environ["EVENTBRIDGE_CONN_SHOP"] = rocketmq.connection
    monkeypatch.setenv("EVENTBRIDGE_CONN_SHOP", rocketmq.connection)
    (shop.rules / "orders.yaml").write_text(RULES.format(folder=shop.folder))

    assert eventbridge("targets", "check", "big-orders", "copy").code == 0
    published = eventbridge("events", "publish", "orders", shop.orders(500, 1500, 2500))
    assert (published.code, published.out) == (
        0,
        "3 events published to orders/orders. The next batch of each runner takes them.\n",
    )
    shop.deliver()

    (partition,) = eventbridge("status", "--json").json["partitions"]
    assert (partition["partition"]["broker"], partition["committed"], partition["end"]) == ("broker-a", 3, 3)
    lines = (shop.folder / "big.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["data"]["amount"] for line in lines) == [1500, 2500]
    assert eventbridge("audit").code == 0
