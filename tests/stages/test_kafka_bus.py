"""A bus that is topics of a real Kafka broker: its events go through all stages, and the books balance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from services.kafka import Kafka, add_partitions, drop_before, make_topics

from eventbridge.errors import OffsetGapError
from eventbridge.model.queue import Queue
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.ingest.buffer import buffer
from eventbridge.stages.ingest.listen import listen
from eventbridge.stages.letters.reader import dead_letters
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle
from eventbridge.stages.runtime.runtime import Runtime

PAGE = (Path(__file__).parents[2] / "docs" / "connectors" / "kafka.md").read_text()

Order = Callable[..., bytes]


@pytest.fixture
def on_kafka(site: Any, kafka: Kafka, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three partitions."""
    make_topics(kafka, "orders", queues=3)
    site.environ["EVENTBRIDGE_CONN_SHOP_KAFKA"] = kafka.connection
    (example,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    site.write_rules(example.replace("/srv/orders/", f"{tmp_path}/"))
    return site


def publish(site: Any, *bodies: bytes) -> None:
    """Publish to the bus of the example, without keys."""
    publisher = site.work.open_publisher(site.work.rule_set().buses["orders"])
    publisher.publish([(body, None) for body in bodies])
    publisher.close()


def deliver(site: Any) -> None:
    """Move batches through all stages until nothing waits."""
    deliver_until_idle(site.work, "orders", InProcessRouter(site.work.store))


def delivered(folder: Path) -> list[str]:
    """Return the ids of the orders in the target's file."""
    return sorted(json.loads(line)["id"] for line in (folder / "big.jsonl").read_text().splitlines())


def test_the_pages_example_delivers(on_kafka: Any, order: Order, tmp_path: Path) -> None:
    """What matches is at the target once, the audit finds nothing, and the group stands at the end in Kafka too."""
    publish(on_kafka, *(order(number, 1990 + number) for number in range(6)), order("small"), b"no event")
    deliver(on_kafka)
    publish(on_kafka, order("late", 5000))
    deliver(on_kafka)

    found = audit(on_kafka.work)
    with_bus = on_kafka.work.open_source(on_kafka.work.rule_set().buses["orders"])
    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "late"]
    assert (found.batches, found.differences) == (2, ())
    assert with_bus.committed("orders") == with_bus.ends()
    with_bus.close()


def test_a_stage_that_dies_reading_is_finished_by_the_next(
    on_kafka: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever listen or buffer stops, the next run reads the same ranges: nothing is missing, nothing comes twice."""
    publish(on_kafka, *(order(number) for number in range(7)), b"no event")

    def land(work: Runtime) -> None:
        buffer(work, listen(work, "orders") or "")

    for wreck in dying_everywhere(on_kafka, land):
        land(wreck.reopen())
        (batch,) = wreck.work.ledger.batches(limit=None)
        landed = [file.detail for file in wreck.work.ledger.files(batch.batch_id, "buffer")]
        assert (sum(each.read for each in landed), sum(each.valid for each in landed)) == (8, 7)
        assert batch.state == "buffered"


def test_events_come_in_every_form(on_kafka: Any, kafka: Kafka, order: Order, tmp_path: Path) -> None:
    """In the body, in headers, or as plain JSON by a mapping; what is neither is a dead letter that says why."""
    on_kafka.write_rules(
        (on_kafka.folder / "rules" / "rules.yaml")
        .read_text()
        .replace("start_at: earliest", "start_at: earliest, mapping: {type: order.placed, source: /old, id: $.no}")
    )
    binary = [("ce_specversion", b"1.0"), ("ce_type", b"order.placed"), ("ce_source", b"/shop"), ("ce_id", b"b")]
    structured = [("content-type", b"application/cloudevents+json")]
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce("orders", b'{"amount": 2000}', headers=binary)
    producer.produce("orders", order("s", 2000), headers=structured)
    producer.produce("orders", b'{"no": 17, "amount": 2000}')
    producer.produce("orders", b'{"amount": 2000}')
    producer.produce("orders", None, b"17")
    producer.flush(10)
    deliver(on_kafka)

    letters = {letter["detail"] for letter in dead_letters(on_kafka.work)}
    assert delivered(tmp_path) == ["17", "b", "s"]
    assert {letter.partition(":")[0] for letter in letters} == {"mapping of id", "the message has no body"}
    assert audit(on_kafka.work).differences == ()


@pytest.mark.parametrize(("policy", "taken"), [("earliest", ["3", "4", "5", "new"]), ("latest", ["new"])])
def test_what_was_dropped_before_it_was_taken_is_a_gap(
    on_kafka: Any, kafka: Kafka, order: Order, tmp_path: Path, policy: str, taken: list[str]
) -> None:
    """The runner goes on as `if_deleted` says, and the books have the offsets that are gone."""
    make_topics(kafka, "orders")
    rules = (on_kafka.folder / "rules" / "rules.yaml").read_text()
    on_kafka.write_rules(rules.replace("start_at: earliest", "start_at: earliest, if_deleted: fail"))
    publish(on_kafka, order("first", 5000))
    deliver(on_kafka)
    publish(on_kafka, *(order(number, 5000) for number in range(6)))
    drop_before(f"kafka://{kafka.servers}", {Queue("orders", "", 0): 4})
    with pytest.raises(OffsetGapError, match=r"dropped offsets 1 to 4 of orders/0.*write if_deleted: earliest"):
        deliver(on_kafka)
    on_kafka.write_rules(rules.replace("start_at: earliest", f"start_at: earliest, if_deleted: {policy}"))
    deliver(on_kafka)
    publish(on_kafka, order("new", 5000))
    deliver(on_kafka)

    found = audit(on_kafka.work)
    gap = 3 if policy == "earliest" else 6
    assert delivered(tmp_path) == sorted(["first", *taken])
    assert (found.events["gaps"], found.events["read"], found.differences) == (gap, 8 - gap, ())


def test_partitions_that_are_added_are_read_from_their_beginning(
    on_kafka: Any, kafka: Kafka, order: Order, tmp_path: Path
) -> None:
    """Also with `start_at: latest`, which counts where the runner began."""
    publish(on_kafka, order("old", 5000))
    deliver(on_kafka)
    add_partitions(kafka, "orders", 6)
    publish(on_kafka, *(order(number, 5000) for number in range(6)))
    deliver(on_kafka)

    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "old"]
    assert audit(on_kafka.work).differences == ()


def test_a_topic_that_was_made_again_stops_the_runner(on_kafka: Any, kafka: Kafka, order: Order) -> None:
    """It holds as much as the old one: only its identity tells."""
    publish(on_kafka, order("1"), order("2"))
    deliver(on_kafka)
    make_topics(kafka, "orders", queues=3)
    publish(on_kafka, *(order(number) for number in range(9)))

    with pytest.raises(OffsetGapError, match="the bus was deleted or replaced"):
        deliver(on_kafka)


def test_the_products_own_bus_may_be_a_topic(on_kafka: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Operational events go where the files say that the bus `eventbridge` is, and rules deliver them from there."""
    make_topics(kafka, "operations")
    source = {"type": "kafka", "connection": "shop_kafka", "topics": ["operations"], "start_at": "earliest"}
    target = {"type": "file", "path": str(tmp_path / "told.jsonl")}
    rule = {"bus": "eventbridge", "pattern": {"type": ["delivery.dead_lettered"]}, "targets": {"log": target}}
    own = {"buses": {"eventbridge": {"source": source}}, "rules": {"tell": rule}}
    (Path(on_kafka.work.settings.rules_folder) / "operations.yaml").write_text(json.dumps(own))
    publish(on_kafka, b"no event")
    deliver(on_kafka)

    deliver_until_idle(on_kafka.work, "eventbridge", InProcessRouter(on_kafka.work.store))

    (event,) = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert (event["type"], event["data"]["reason"]) == ("delivery.dead_lettered", "Malformed")
    assert not (on_kafka.work.settings.bus_folder / "eventbridge.sqlite").exists()
