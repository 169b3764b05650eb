"""Topics of each kind of real broker work as targets: in order, with acknowledgements, and as dead letter queues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from pipeline.broker_shop import connect, connection_name, delivered, example_of, shop_on
from pipeline.broker_shop import publish as publish_to_broker
from pipeline.conftest import Killed, dying_at
from pipeline.delivering import Sending, segment_rows
from pipeline.modes import deliver_all
from pipeline.streaming_tasks import a_streaming_task, until
from services.brokers import Broker, messages
from stored import dead_letters

from eventbridge.delivery.push import push
from eventbridge.event.ids import delivery_id_text
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit

Order = Callable[..., bytes]


@pytest.fixture
def shop(site: Any, broker: Broker) -> Any:
    """The installation of the page's example, its topics made just now."""
    broker.make_topics("placed-orders", partitions=3)
    broker.make_topics("dead-orders")
    connect(site, broker)
    return site


@pytest.fixture
def example(broker: Broker) -> str:
    """Return the rules of the page's example."""
    return example_of(broker.kind, "rules target")


def publish(site: Any, *bodies: bytes) -> None:
    with site.bus(topics=("events",)) as bus:
        bus.publish([(body, None) for body in bodies])


def deliver(site: Any) -> None:
    deliver_all(site.runtime, "orders")


def test_the_pages_example_delivers_in_order(shop: Any, broker: Broker, order: Order, example: str) -> None:
    """All orders of a customer are in one queue, in their order, each with its delivery id; everything is
    reconciled.
    """
    shop.write_rules(example)
    placed = [
        order(f"{customer}{number}", data={"customer": customer, "number": number})
        for number in range(5)
        for customer in "abcdef"
    ]
    publish(shop, *placed)
    deliver(shop)

    of_customers: dict[str, list[tuple[int, int]]] = {}
    for queue, found in enumerate(messages(broker, "placed-orders")):
        for message in found:
            data = json.loads(message.body or b"")["data"]
            of_customers.setdefault(data["customer"], []).append((queue, data["number"]))
            headers = dict(message.headers or ())
            assert len(broker.delivery_id(message)) == 36
            assert headers["content-type"] == b"application/cloudevents+json"
            assert headers.get("TAGS") == broker.tag
    assert sorted(of_customers) == list("abcdef")
    assert all([number for _, number in each] == [0, 1, 2, 3, 4] for each in of_customers.values())
    assert all(len({queue for queue, _ in each}) == 1 for each in of_customers.values())
    assert audit(shop.runtime).differences == ()


def test_a_message_that_is_too_large_is_a_dead_letter(shop: Any, broker: Broker, order: Order, example: str) -> None:
    """At once, and its copy is in the queue that is a topic; the others are delivered."""
    broker.bound_messages("placed-orders")
    shop.write_rules(example.replace("ordering_key: $.data.customer", "content_mode: binary"))
    large = "x" * 40_000
    publish(shop, order("small"), order("large", subject=large, data={"text": large}), order("small too"))
    deliver(shop)

    (dead_letter,) = dead_letters(shop.runtime)
    ((copy,),) = messages(broker, "dead-orders")
    assert (dead_letter["event_id"], dead_letter["reason"]) == ("large", "non_retryable")
    assert json.loads(copy.body or b"")["event_id"] == "large"
    assert sum(map(len, messages(broker, "placed-orders"))) == 2
    assert audit(shop.runtime).differences == ()


@pytest.mark.parametrize("away", [False, True], ids=["no-topic", "no-broker"])
def test_an_error_that_an_operator_can_fix_is_retried(
    shop: Any, broker: Broker, order: Order, example: str, away: bool
) -> None:
    """A missing topic, or brokers that do not respond: deliveries wait, and none is dead-lettered."""
    connection, reason = broker.unreachable if away else (broker.server.connection, "TopicUnknown")
    topic = "placed-orders" if away else "trains"
    shop.environ[connection_name(broker)] = connection
    more = (
        "timeout: 2s\n        retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
    )
    rules = example.replace("        ordering_key: $.data.customer\n", f"        {more}\n")
    shop.write_rules(rules.replace("topic: placed-orders", f"topic: {topic}"))
    publish(shop, order("1"))
    deliver(shop)

    (row,) = shop.runtime.ledger.pending.find()
    (batch,) = shop.runtime.ledger.batches.find(limit=None)
    assert (row.reason, row.count, row.state) == ("retry_scheduled", 1, "scheduled")
    assert {each["error_class"] for each in segment_rows(shop.runtime, batch.batch_id)} == {reason}


def test_attributes_are_headers_in_binary_mode(shop: Any, broker: Broker, order: Order, example: str) -> None:
    """As CloudEvents' binding for Kafka and its SDK for RocketMQ have them: not escaped, the data alone as the body."""
    shop.write_rules(example.replace("topic: placed-orders", "topic: placed-orders\n        content_mode: binary"))
    publish(shop, order("1", subject="Zürich"))
    deliver(shop)

    (message,) = [message for found in messages(broker, "placed-orders") for message in found]
    headers = dict(message.headers or ())
    assert (headers["ce_id"], headers["ce_subject"]) == (b"1", "Zürich".encode())
    assert json.loads(message.body or b"") == {"id": "1", "amount": 10}


def test_a_streaming_task_delivers_from_a_broker_to_a_broker(
    sending: Sending, broker: Broker, order: Order, tmp_path: Path
) -> None:
    """As events come, each once; the group's offsets are committed at the bus when the batches are."""
    shop = shop_on(sending.site, broker, tmp_path)
    broker.make_topics("placed-orders")
    target = f"      warehouse: {{type: {broker.kind}, connection: shop_{broker.kind}, topic: placed-orders}}\n"
    shop.write_rules((shop.folder / "rules" / "rules.yaml").read_text() + target)

    def received() -> list[str]:
        with suppress(FileNotFoundError):
            return delivered(tmp_path)
        return []

    with a_streaming_task(sending):
        for number in range(1, 12):
            publish_to_broker(shop, order(number, 5000))
            until(lambda number=number: len(received()) == number)
        until(lambda: len(messages(broker, "placed-orders")[0]) == 11)

    assert len(shop.runtime.ledger.batches.find()) < 11, "a batch for each is what the stages would do"
    assert sorted(received(), key=int) == [str(number) for number in range(1, 12)]
    assert len({broker.delivery_id(message) for message in messages(broker, "placed-orders")[0]}) == 11
    with closing(shop.runtime.open_source(shop.runtime.rule_set().buses["orders"])) as bus:
        assert bus.committed("orders") == bus.ends()
    assert audit(shop.runtime).differences == ()


@pytest.mark.parametrize("point", ["target.send", "target.responded"])
def test_a_push_may_die_around_any_send(
    sending: Sending, site: Any, broker: Broker, tmp_path: Path, point: str
) -> None:
    """What is written down is not sent again, the rest is, and what comes twice has the same id."""
    broker.make_topics("copies", partitions=2)
    site.environ |= {"EVENTBRIDGE_CONN_SHOP": broker.server.connection, "EVENTBRIDGE_SEGMENT_RESPONSES": "2"}
    batch = sending.routed(3, crm=f"{{type: {broker.kind}, connection: shop, topic: copies, max_in_flight: 2}}")
    seen: Counter[str] = Counter()

    for fatal in range(1, 4):
        wreck = site.copy(tmp_path / f"wreck-{fatal}")
        with dying_at(point, fatal), pytest.raises(Killed):
            push(wreck.runtime, batch.batch_id, 0)
        runtime = wreck.reopen()
        written = {delivery_id_text(row["delivery_id"]) for row in segment_rows(runtime, batch.batch_id)}
        push(runtime, batch.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch)
        assert commit(runtime, batch.batch_id)
        mine = Counter(broker.delivery_id(each).decode() for some in messages(broker, "copies") for each in some) - seen
        seen += mine
        wreck.close()

        assert len(mine) == 3
        assert max(mine.values()) <= 2
        assert all(count == 1 for key, count in mine.items() if key in written)
