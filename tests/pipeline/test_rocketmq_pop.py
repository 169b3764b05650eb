"""A bus in RocketMQ's pop mode, in which brokers track each message until it is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pipeline.broker_shop import connect, deliver, delivered, example_of, publish
from services.brokers import OnRocketmq
from services.rocketmq import RocketMQ

from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.config.connection import Connection
from eventbridge.repair.audit import audit
from eventbridge.sources.rocketmq.queue import PopMode, RocketmqQueue
from eventbridge.views.partitions import partition_statuses

Order = Callable[..., bytes]


@pytest.fixture
def shop(site: Any, rocketmq: RocketMQ, tmp_path: Path) -> Any:
    """The installation of the page's example of pop mode, its topic made just now, in a group of its own."""
    broker = OnRocketmq(rocketmq)
    broker.make_topics("orders", partitions=3)
    connect(site, broker)
    group = f"g{tmp_path.name.replace('_', '-')}"
    site.write_rules(
        example_of("rocketmq", "pop")
        .replace("path: orders/", f"path: {tmp_path}/")
        .replace("group: shop", f"group: {group}")
    )
    return site


@pytest.fixture
def queue(rocketmq: RocketMQ, tmp_path: Path) -> Iterator[RocketmqQueue]:
    """A topic, made just now, as a queue whose messages are invisible for ten seconds."""
    OnRocketmq(rocketmq).make_topics("popped", partitions=2)
    settings = client_settings(Connection("shop", "rocketmq", rocketmq.servers))
    mode = PopMode(f"g{tmp_path.name.replace('_', '-')}", 10.0, from_end=False)
    with closing(RocketmqQueue(settings, ["popped"], mode)) as queue:
        yield queue


def test_events_are_delivered_and_acknowledged(shop: Any, order: Order, tmp_path: Path) -> None:
    """Events are delivered once and reconciled, and the broker has no unacknowledged messages left."""
    publish(shop, *(order(str(number), 2000) for number in range(100)))
    deliver(shop)
    publish(shop, order("later", 2000))
    deliver(shop)
    statuses = partition_statuses(shop.runtime, shop.runtime.rule_set(), "orders", "orders") or []

    assert delivered(tmp_path) == sorted([*map(str, range(100)), "later"])
    assert [(str(each.partition.topic), each.committed, each.gap) for each in statuses] == [("orders", 101, "")]
    assert audit(shop.runtime).differences == ()


def test_messages_are_held_extended_and_acknowledged(queue: RocketmqQueue) -> None:
    """A message is removed by its first or its extended receipt; an unacknowledged one waits for its timeout."""
    queue.publish([(b"1", "a"), (b"2", "b")])
    rows = queue.receive(10).to_pylist()
    assert sorted((row["body"], row["key"]) for row in rows) == [(b"1", b"a"), (b"2", b"b")]
    assert len({row["message_id"] for row in rows}) == 2
    assert queue.receive(10).num_rows == 0
    (first, second) = queue.extend([row["receipt"] for row in rows])
    assert {first, second}.isdisjoint(row["receipt"] for row in rows)
    queue.acknowledge([first])
    queue.acknowledge([first, second])

    while queue.waiting():
        pass


def test_an_unacknowledged_message_comes_again(queue: RocketmqQueue) -> None:
    """An unacknowledged message is repeated from the retry topic, with the same id and a valid receipt."""
    queue.publish([(b"1", "a")])
    (first,) = queue.receive(1).to_pylist()
    again: list[Any] = []
    until = time.monotonic() + 60
    while not again and time.monotonic() < until:
        again = queue.receive(10).to_pylist() if queue.waiting() else []
    assert [(row["message_id"], row["body"], row["key"]) for row in again] == [(first["message_id"], b"1", b"a")]
    (receipt,) = queue.extend([again[0]["receipt"]])
    queue.acknowledge([first["receipt"], receipt])

    while queue.waiting():
        pass
