"""From RocketMQ to RocketMQ, a failure suspends its queue, and a dead broker only delays deliveries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pipeline.delivering import RunningClock
from pipeline.modes import deliver_all
from services.rocketmq import RocketMQ, make_topics

from eventbridge import fault_points
from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.config.connection import Connection
from eventbridge.repair.audit import audit
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.testing.sources import messages_of

RULES = """
buses:
  orders: {source: {type: rocketmq, connection: shop, topics: [orders], start_at: earliest}}
rules:
  all:
    bus: orders
    pattern: {}
    targets:
      copy:
        type: rocketmq
        connection: shop
        topic: TOPIC
        timeout: 2s
        MORE
        retry: {policy: custom, max_retries: 5, initial_delay: 1h, multiplier: 1, max_delay: 1h}
"""

Order = Callable[..., bytes]


@pytest.fixture
def both_ways(site: Any, rocketmq: RocketMQ) -> Iterator[Any]:
    """An installation whose bus has three queues, and whose target is a topic of two."""
    make_topics(rocketmq, "orders", partitions=3)
    make_topics(rocketmq, "copies", partitions=2)
    site.environ["EVENTBRIDGE_CONN_SHOP"] = rocketmq.connection
    yield site
    site.close()


def log(rocketmq: RocketMQ, topic: str) -> RocketmqLog:
    return RocketmqLog(client_settings(Connection("shop", "rocketmq", rocketmq.servers)), [topic])


def publish(rocketmq: RocketMQ, *bodies: bytes) -> list[int]:
    """Publish to the bus, and return in which queue each event lies."""
    with closing(log(rocketmq, "orders")) as bus:
        return [queue.partition_id for queue, _ in bus.publish([(body, None) for body in bodies])]


def copies(rocketmq: RocketMQ) -> list[list[str]]:
    """Return the ids that lie in each queue of the target's topic."""
    with closing(log(rocketmq, "copies")) as found:
        return [
            [json.loads(message.body or b"")["id"] for message in messages_of(found.read(queue, 0, end))]
            for queue, end in found.ends().items()
        ]


def deliver(site: Any) -> None:
    deliver_all(site.runtime, "orders")


def test_a_failure_suspends_its_queue(both_ways: Any, rocketmq: RocketMQ, order: Order, clock: RunningClock) -> None:
    """Orderly consumption, as RocketMQ calls it: one attempt a queue, then all of it waits; later it comes in order."""
    rules = RULES.replace("MORE", "ordering_key: partition")
    both_ways.write_rules(rules.replace("TOPIC", "trains"))
    lies_in = publish(rocketmq, *(order(number) for number in range(12)))
    deliver(both_ways)
    pending = both_ways.runtime.ledger.pending.find()
    assert sum(row.count for row in pending) == 12
    assert sum(row.count for row in pending if row.attempts) == len(set(lies_in)) == 3

    both_ways.write_rules(rules.replace("TOPIC", "copies"))
    for _ in range(3):
        clock.advance(2 * 3600)
        deliver(both_ways)

    found = [each for queue in copies(rocketmq) for each in queue]
    assert sorted(found, key=int) == [str(number) for number in range(12)]
    for queue in range(3):
        mine = [str(number) for number, lies in enumerate(lies_in) if lies == queue]
        assert [each for each in found if each in mine] == mine
    assert audit(both_ways.runtime).differences == ()


def test_a_broker_that_dies_during_a_push_loses_nothing(
    both_ways: Any, rocketmq: RocketMQ, order: Order, clock: RunningClock
) -> None:
    """It is killed while messages are on their way, and comes back: all of them arrived, and everything is
    reconciled.
    """
    both_ways.write_rules(RULES.replace("MORE", "max_in_flight: 20").replace("TOPIC", "copies"))
    publish(rocketmq, *(order(number) for number in range(400)))
    sent = threading.Event()
    number = 0

    def kill(point: str) -> None:
        nonlocal number
        number += point == "target.send"
        if number == 200 and not sent.is_set():
            sent.set()
            rocketmq.kill()
            rocketmq.start()

    fault_points.install(kill)
    deliver(both_ways)
    fault_points.install(None)
    clock.advance(2 * 3600)
    deliver(both_ways)

    assert sent.is_set()
    assert {each for queue in copies(rocketmq) for each in queue} == {str(number) for number in range(400)}
    assert audit(both_ways.runtime).differences == ()
