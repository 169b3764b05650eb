"""Targets that are topics of a real RocketMQ: ordered, acknowledged, and as dead letter queues."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from services.rocketmq import RocketMQ, make_topics
from stages.delivering import segment_rows

from eventbridge.config.connection import Connection
from eventbridge.rocketmq.settings import client_settings
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.stages.letters.reader import dead_letters
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle
from eventbridge.testing.messages import Message, messages_of

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "rocketmq.md").read_text()
(EXAMPLE,) = re.findall(r"^```yaml rules target\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

Order = Callable[..., bytes]


@pytest.fixture
def to_rocketmq(site: Any, rocketmq: RocketMQ) -> Any:
    """The installation of the page's example, its topics made just now."""
    make_topics(rocketmq, "placed-orders", queues=3)
    make_topics(rocketmq, "dead-orders")
    site.environ["EVENTBRIDGE_CONN_SHOP_ROCKETMQ"] = rocketmq.connection
    return site


def publish(site: Any, *bodies: bytes) -> None:
    with site.bus(topics=("events",)) as bus:
        bus.publish([(body, None) for body in bodies])


def deliver(site: Any) -> None:
    deliver_until_idle(site.work, "orders", InProcessRouter(site.work.store))


def messages(rocketmq: RocketMQ, topic: str) -> list[list[Message]]:
    """Return the messages of each queue of a topic."""
    settings = client_settings(Connection("shop", "rocketmq", rocketmq.servers))
    with closing(RocketmqLog(settings, [topic])) as log:
        return [list(messages_of(log.read(queue, 0, end))) for queue, end in log.ends().items()]


def test_the_pages_example_delivers_in_order(to_rocketmq: Any, rocketmq: RocketMQ, order: Order) -> None:
    """All orders of a customer are in one queue, in their order, each with its delivery id; the books balance."""
    to_rocketmq.write_rules(EXAMPLE)
    placed = [
        order(f"{customer}{number}", data={"customer": customer, "number": number})
        for number in range(5)
        for customer in "abcdef"
    ]
    publish(to_rocketmq, *placed)
    deliver(to_rocketmq)

    of_customers: dict[str, list[tuple[int, int]]] = {}
    for queue, found in enumerate(messages(rocketmq, "placed-orders")):
        for message in found:
            data = json.loads(message.body or b"")["data"]
            of_customers.setdefault(data["customer"], []).append((queue, data["number"]))
            headers = dict(message.headers or ())
            assert len(message.key or b"") == 36
            assert headers["content-type"] == b"application/cloudevents+json"
            assert headers["TAGS"] == b"placed"
    assert sorted(of_customers) == list("abcdef")
    assert all([number for _, number in each] == [0, 1, 2, 3, 4] for each in of_customers.values())
    assert all(len({queue for queue, _ in each}) == 1 for each in of_customers.values())
    assert audit(to_rocketmq.work).differences == ()


def test_a_message_that_is_too_large_is_a_dead_letter(to_rocketmq: Any, rocketmq: RocketMQ, order: Order) -> None:
    """At once, and its copy is in the queue that is a topic; the others are delivered."""
    to_rocketmq.write_rules(EXAMPLE.replace("ordered_by: $.data.customer", "content_mode: binary"))
    publish(to_rocketmq, order("small"), order("large", subject="x" * 40_000), order("small too"))
    deliver(to_rocketmq)

    (letter,) = dead_letters(to_rocketmq.work)
    ((copy,),) = messages(rocketmq, "dead-orders")
    assert (letter["event_id"], letter["reason"]) == ("large", "NonRetryable")
    assert json.loads(copy.body or b"")["event_id"] == "large"
    assert sum(map(len, messages(rocketmq, "placed-orders"))) == 2
    assert audit(to_rocketmq.work).differences == ()


@pytest.mark.parametrize(
    ("connection", "topic", "reason"),
    [("", "trains", "TopicUnknown"), ("rocketmq://127.0.0.1:1", "placed-orders", "NetworkError")],
)
def test_what_somebody_can_mend_is_tried_again(
    to_rocketmq: Any, order: Order, connection: str, topic: str, reason: str
) -> None:
    """A topic that is not there, servers that do not answer: deliveries wait, and none is given up."""
    if connection:
        to_rocketmq.environ["EVENTBRIDGE_CONN_SHOP_ROCKETMQ"] = connection
    more = "timeout: 2s\n        retry: {policy: own, attempts: 3, initial: 1h, multiplier: 1, maximum: 1h}"
    rules = EXAMPLE.replace("        ordered_by: $.data.customer\n", f"        {more}\n")
    to_rocketmq.write_rules(rules.replace("topic: placed-orders", f"topic: {topic}"))
    publish(to_rocketmq, order("1"))
    deliver(to_rocketmq)

    (row,) = to_rocketmq.work.ledger.parked()
    (batch,) = to_rocketmq.work.ledger.batches(limit=None)
    assert (row.reason, row.count, row.state) == ("RetryAt", 1, "due")
    assert {each["error_class"] for each in segment_rows(to_rocketmq.work, batch.batch_id)} == {reason}


def test_attributes_are_headers_in_binary_mode(to_rocketmq: Any, rocketmq: RocketMQ, order: Order) -> None:
    """As CloudEvents' SDK has them: not escaped, the data alone as the body."""
    to_rocketmq.write_rules(EXAMPLE.replace("tag: placed", "content_mode: binary"))
    publish(to_rocketmq, order("1", subject="Zürich"))
    deliver(to_rocketmq)

    (message,) = [message for found in messages(rocketmq, "placed-orders") for message in found]
    headers = dict(message.headers or ())
    assert (headers["ce_id"], headers["ce_subject"]) == (b"1", "Zürich".encode())
    assert json.loads(message.body or b"") == {"id": "1", "amount": 10}
