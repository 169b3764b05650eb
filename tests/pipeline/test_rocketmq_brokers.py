"""A bus whose topic is on two brokers reads both, and an unreachable broker does not delay the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from demo.ports import reserve
from pipeline.modes import deliver_all
from services.rocketmq import BROKERS, RocketMQ, make_topics

from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.repair.audit import audit

RULES = """
buses:
  orders: {{source: {{type: rocketmq, connection: shop, topics: [orders], start_at: earliest}}}}
rules:
  all:
    bus: orders
    pattern: {{}}
    targets: {{log: {{type: file, path: {folder}/all.jsonl}}}}
"""

Order = Callable[..., bytes]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """Provide a name server with two brokers."""
    ports = {name: reserve() for name in ("names", "broker", "second")}
    with RocketMQ(tmp_path_factory.mktemp("two"), ports=ports) as server:
        yield server


def send(server: RocketMQ, broker: str, body: bytes) -> None:
    """Send an event to a broker."""
    with closing(server.client()) as client:
        partition = next(partition for partition in client.queues("orders") if partition.broker == broker)
        client.send(partition, OutgoingMessage(body))


def test_messages_of_two_brokers_are_delivered(two: RocketMQ, site: Any, order: Order, tmp_path: Path) -> None:
    """Messages of both brokers are delivered; while one is down the other continues, and its messages follow later."""
    make_topics(two, "orders", partitions=2)
    site.environ["EVENTBRIDGE_CONN_SHOP"] = two.connection
    site.write_rules(RULES.format(folder=tmp_path))

    def delivered() -> list[str]:
        deliver_all(site.runtime, "orders")
        return sorted(json.loads(line)["id"] for line in (tmp_path / "all.jsonl").read_text().splitlines())

    with closing(site.runtime.open_publisher(site.runtime.rule_set().buses["orders"])) as publisher:
        positions = publisher.publish([(order(str(number)), None) for number in range(8)])
    assert {partition.broker for partition, _ in positions} == set(BROKERS.values())
    assert delivered() == [str(number) for number in range(8)]

    send(two, "broker-b", order("8"))
    two.kill("second")
    send(two, "broker-a", order("9"))
    site.reopen()
    assert "9" in delivered()
    two.start("second")
    site.reopen()
    assert delivered() == [str(number) for number in range(10)]
    assert audit(site.runtime).differences == ()


def test_a_rule_that_moves_while_a_broker_is_away_continues_there_too(
    two: RocketMQ, site: Any, order: Order, tmp_path: Path
) -> None:
    """The new runner begins where the old one ended, even on an unreachable broker, so nothing is repeated."""
    make_topics(two, "orders", partitions=2)
    site.environ["EVENTBRIDGE_CONN_SHOP"] = two.connection
    written = RULES.format(folder=tmp_path)
    site.write_rules(written)
    with closing(site.runtime.open_publisher(site.runtime.rule_set().buses["orders"])) as publisher:
        publisher.publish([(order(str(number)), None) for number in range(8)])
    deliver_all(site.runtime, "orders")

    two.kill("second")
    site.write_rules(written.replace("    bus: orders\n", "    bus: orders\n    runner: new\n"))
    site.reopen()
    deliver_all(site.runtime, "new")
    two.start("second")
    send(two, "broker-b", order("8"))
    site.reopen()
    deliver_all(site.runtime, "new")

    delivered = [json.loads(line)["id"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sorted(delivered) == [str(number) for number in range(9)]
    assert audit(site.runtime).differences == ()
