"""Events that are too large for the Kafka topic of their bus: each is told, and none keeps others from the bus."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from api.server import Installation, Server, order
from services.kafka import Kafka, make_topics

from eventbridge.api.writer import BusWriter
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.testing.messages import messages_of

WAIT = 30
#: What the topic takes, with what Kafka puts around a message.
MOST = 10_000

RULES = """
buses:
  parcels: {source: {type: kafka, connection: shop, topics: [parcels], start_at: earliest}}
"""


def log(kafka: Kafka) -> KafkaLog:
    return KafkaLog({"bootstrap.servers": kafka.servers}, ["parcels"], clock=lambda: datetime.now(UTC))


def bodies(kafka: Kafka) -> list[bytes]:
    """Return what lies in the topic."""
    with closing(log(kafka)) as found:
        blocks = [block for partition, end in found.ends().items() for block in found.read(partition, 0, end)]
        return [message.body or b"" for message in messages_of(blocks)]


def test_a_large_event_of_one_call_fails_no_other(kafka: Kafka) -> None:
    """Two calls that are published together: of the one that has it the others are published too."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    opening, may_open = threading.Event(), threading.Event()

    def opened() -> KafkaLog:
        opening.set()
        may_open.wait(WAIT)
        return log(kafka)

    writer = BusWriter("parcels", opened)
    first = writer.publish([(b"first", None)], "parcels")
    assert opening.wait(WAIT)
    mixed = writer.publish([(b"small", None), (b"x" * MOST, "key"), (b"small too", None)], "parcels")
    other = writer.publish([(b"other", None)], "parcels")
    may_open.set()
    told = [call.result(WAIT) for call in (first, mixed, other)]
    writer.close()

    assert [[isinstance(place, int) for place in places] for places in told] == [[False], [False, True, False], [False]]
    assert sorted(bodies(kafka)) == [b"first", b"other", b"small", b"small too"]


def test_small_events_that_come_together_are_no_large_one(kafka: Kafka) -> None:
    """A batch of messages is no larger than its topic takes, however many wait."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    with closing(log(kafka)) as bus:
        bus.publish([(b"x" * 1_000, None)] * 200)

    assert len(bodies(kafka)) == 200


def test_the_largest_that_is_let_through_is_taken(kafka: Kafka) -> None:
    """To a byte: the broker takes what the bound allows, and refuses little more."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    with closing(log(kafka)) as bus:
        most = bus.most_bytes("parcels") or 0
        bus.publish([(b"x" * (most - 3), "key")])

    assert MOST - 200 < most < MOST
    assert [len(body) for body in bodies(kafka)] == [most - 3]


def test_it_has_a_result_of_its_own(kafka: Kafka, tmp_path: Path) -> None:
    """413 beside the places of the others; and of the whole call, where there are no others."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    installation = Installation(tmp_path, EVENTBRIDGE_CONN_SHOP=kafka.connection)
    (tmp_path / "rules" / "parcels.yaml").write_text(RULES)
    large = order(2, data={"text": "x" * MOST})
    batched = {"content-type": "application/cloudevents-batch+json"}
    with Server(installation) as server, server.client(installation.token("shop", "publish:parcels")) as client:
        path = "/buses/parcels/events"
        mixed = client.post(path, content=json.dumps([order(1), large, order(3)]), headers=batched)
        alone = client.post(path, content=json.dumps([large]), headers=batched)

    told = mixed.json()
    assert (mixed.status_code, told["published"], told["failed"]) == (207, 2, 1)
    assert [(each["id"], each.get("status")) for each in told["results"]] == [("o1", None), ("o2", 413), ("o3", None)]
    assert "Raise its max.message.bytes" in told["results"][1]["error"]
    assert alone.status_code == 413
    assert sorted(json.loads(body)["id"] for body in bodies(kafka)) == ["o1", "o3"]
