"""Targets that are topics of a real Kafka broker: ordered, acknowledged, and as dead letter queues."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from services.kafka import Kafka, make_topics
from stages.delivering import segment_rows

from eventbridge.config.connection import Connection
from eventbridge.kafka.settings import client_settings
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.stages.letters.reader import dead_letters
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle
from eventbridge.testing.messages import Message, messages_of

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "kafka.md").read_text()
(EXAMPLE,) = re.findall(r"^```yaml rules target\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

Order = Callable[..., bytes]


@pytest.fixture
def to_kafka(site: Any, kafka: Kafka) -> Any:
    """The installation of the page's example, its topics made just now."""
    make_topics(kafka, "placed-orders", queues=3)
    make_topics(kafka, "dead-orders")
    site.environ["EVENTBRIDGE_CONN_SHOP_KAFKA"] = kafka.connection
    return site


def publish(site: Any, *bodies: bytes) -> None:
    with site.bus(topics=("events",)) as bus:
        bus.publish([(body, None) for body in bodies])


def deliver(site: Any) -> None:
    deliver_until_idle(site.work, "orders", InProcessRouter(site.work.store))


def messages(kafka: Kafka, topic: str) -> list[list[Message]]:
    """Return the messages of each partition of a topic."""
    settings = client_settings(Connection("shop", "kafka", kafka.servers))
    with closing(KafkaLog(settings, [topic], clock=lambda: datetime.now(UTC))) as log:
        return [list(messages_of(log.read(queue, 0, end))) for queue, end in log.ends().items()]


def test_the_pages_example_delivers_in_order(to_kafka: Any, kafka: Kafka, order: Order) -> None:
    """All orders of a customer are in one partition, in their order, each with its delivery id; the books balance."""
    to_kafka.write_rules(EXAMPLE)
    placed = [
        order(f"{customer}{number}", data={"customer": customer, "number": number})
        for number in range(5)
        for customer in "abcdef"
    ]
    publish(to_kafka, *placed)
    deliver(to_kafka)

    of_customers: dict[str, list[tuple[int, int]]] = {}
    for partition, found in enumerate(messages(kafka, "placed-orders")):
        for message in found:
            data = json.loads(message.body or b"")["data"]
            of_customers.setdefault(data["customer"], []).append((partition, data["number"]))
            headers = dict(message.headers or ())
            assert len(headers["eventbridge-delivery-id"] or b"") == 36
            assert headers["content-type"] == b"application/cloudevents+json"
    assert sorted(of_customers) == list("abcdef")
    assert all([number for _, number in each] == [0, 1, 2, 3, 4] for each in of_customers.values())
    assert all(len({partition for partition, _ in each}) == 1 for each in of_customers.values())
    assert audit(to_kafka.work).differences == ()


def test_a_message_that_is_too_large_is_a_dead_letter(to_kafka: Any, kafka: Kafka, order: Order) -> None:
    """At once, and its copy is in the queue that is a topic; the others are delivered."""
    make_topics(kafka, "placed-orders", **{"max.message.bytes": "20000"})
    to_kafka.write_rules(EXAMPLE.replace("        ordered_by: $.data.customer\n", ""))
    publish(to_kafka, order("small"), order("large", data={"text": "x" * 40_000}), order("small too"))
    deliver(to_kafka)

    (letter,) = dead_letters(to_kafka.work)
    ((copy,),) = messages(kafka, "dead-orders")
    assert (letter["event_id"], letter["reason"]) == ("large", "NonRetryable")
    assert json.loads(copy.body or b"")["event_id"] == "large"
    assert len(messages(kafka, "placed-orders")[0]) == 2
    assert audit(to_kafka.work).differences == ()


@pytest.mark.parametrize(
    ("connection", "topic", "reason"),
    [("", "trains", "TopicUnknown"), ("kafka://nobody:wrong@127.0.0.1:1", "placed-orders", "Timeout")],
)
def test_what_somebody_can_mend_is_tried_again(
    to_kafka: Any, order: Order, connection: str, topic: str, reason: str
) -> None:
    """A topic that is not there, brokers that do not answer: deliveries wait, and none is given up."""
    if connection:
        to_kafka.environ["EVENTBRIDGE_CONN_SHOP_KAFKA"] = connection
    more = "timeout: 2s\n        retry: {policy: own, attempts: 3, initial: 1h, multiplier: 1, maximum: 1h}"
    rules = EXAMPLE.replace("        ordered_by: $.data.customer\n", f"        {more}\n")
    to_kafka.write_rules(rules.replace("topic: placed-orders", f"topic: {topic}"))
    publish(to_kafka, order("1"))
    deliver(to_kafka)

    (row,) = to_kafka.work.ledger.parked()
    (batch,) = to_kafka.work.ledger.batches(limit=None)
    assert (row.reason, row.count, row.state) == ("RetryAt", 1, "due")
    assert {each["error_class"] for each in segment_rows(to_kafka.work, batch.batch_id)} == {reason}


def test_attributes_are_headers_in_binary_mode(to_kafka: Any, kafka: Kafka, order: Order) -> None:
    """As CloudEvents' binding for Kafka has them: not escaped, the data alone as the body."""
    to_kafka.write_rules(EXAMPLE.replace("topic: placed-orders", "topic: placed-orders\n        content_mode: binary"))
    publish(to_kafka, order("1", subject="Zürich"))
    deliver(to_kafka)

    (message,) = [message for found in messages(kafka, "placed-orders") for message in found]
    headers = dict(message.headers or ())
    assert (headers["ce_id"], headers["ce_subject"]) == (b"1", "Zürich".encode())
    assert json.loads(message.body or b"") == {"id": "1", "amount": 10}
