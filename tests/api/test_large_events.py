"""Events that are too large for the Kafka topic of their bus: each is reported, and the others are published."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from api.server import Installation, Server, order
from services.kafka import Kafka, make_topics

from eventbridge.api.buses import BusWriter
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.testing.sources import messages_of

WAIT = 30
#: The limit of the topic, including Kafka's overhead of a message.
MOST = 10_000

RULES = """
buses:
  parcels: {source: {type: kafka, connection: shop, topics: [parcels], start_at: earliest}}
"""


def log(kafka: Kafka) -> KafkaLog:
    return KafkaLog({"bootstrap.servers": kafka.servers}, ["parcels"], clock=lambda: datetime.now(UTC))


def bodies(kafka: Kafka) -> list[bytes]:
    """Return the messages of the topic."""
    with closing(log(kafka)) as found:
        blocks = [block for partition, end in found.ends().items() for block in found.read(partition, 0, end)]
        return [message.body or b"" for message in messages_of(blocks)]


def test_a_large_event_does_not_fail_other_events(kafka: Kafka) -> None:
    """Two calls are published together; all events but the large one are published."""
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
    positions = [call.result(WAIT) for call in (first, mixed, other)]
    writer.close()

    assert [[isinstance(each, int) for each in call] for call in positions] == [[False], [False, True, False], [False]]
    assert sorted(bodies(kafka)) == [b"first", b"other", b"small", b"small too"]


def test_many_small_events_are_not_too_large_together(kafka: Kafka) -> None:
    """A batch of messages stays within the limit of the topic, however many events are queued."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    with closing(log(kafka)) as bus:
        bus.publish([(b"x" * 1_000, None)] * 200)

    assert len(bodies(kafka)) == 200


def test_the_largest_allowed_event_is_published(kafka: Kafka) -> None:
    """To the byte: the broker accepts the largest allowed event, and rejects a slightly larger one."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    with closing(log(kafka)) as bus:
        most = bus.max_bytes("parcels") or 0
        bus.publish([(b"x" * (most - 3), "key")])

    assert MOST - 200 < most < MOST
    assert [len(body) for body in bodies(kafka)] == [most - 3]


def test_a_large_event_has_a_result_of_its_own(kafka: Kafka, tmp_path: Path) -> None:
    """Status 413 beside the positions of the others; the status of the call if there are no others."""
    make_topics(kafka, "parcels", **{"max.message.bytes": str(MOST)})
    installation = Installation(tmp_path, EVENTBRIDGE_CONN_SHOP=kafka.connection)
    (tmp_path / "rules" / "parcels.yaml").write_text(RULES)
    large = order(2, data={"text": "x" * MOST})
    batched = {"content-type": "application/cloudevents-batch+json"}
    with Server(installation) as server, server.client(installation.token("shop", "publish:parcels")) as client:
        path = "/v1/buses/parcels/events"
        mixed = client.post(path, content=json.dumps([order(1), large, order(3)]), headers=batched)
        alone = client.post(path, content=json.dumps([large]), headers=batched)

    body = mixed.json()
    assert (mixed.status_code, body["published"], body["failed"]) == (207, 2, 1)
    assert [(each["id"], each.get("status")) for each in body["results"]] == [("o1", None), ("o2", 413), ("o3", None)]
    assert "Raise max.message.bytes of the topic" in body["results"][1]["error"]
    assert alone.status_code == 413
    assert sorted(json.loads(body)["id"] for body in bodies(kafka)) == ["o1", "o3"]
