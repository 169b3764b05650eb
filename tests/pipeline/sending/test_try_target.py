"""Operators can test whether a target is reachable, with the exact reason if not, and its response to one event."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from demo.s3_server import S3Server, connection_uri
from pipeline.delivering import REFUSED, Sending, http
from services.kafka import Kafka, make_topics
from services.rocketmq import RocketMQ
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge.control.try_target import check_target, send_event
from eventbridge.errors import EventError, NotFoundError
from eventbridge.repair.audit import audit

Order = Callable[..., bytes]


def test_an_existing_target_is_reachable(sending: Sending, tmp_path: Path, kafka: Kafka, order: Order) -> None:
    """Nothing is sent or created; then each takes one event, outside of every reconciliation."""
    make_topics(kafka, "crm")
    sending.site.environ["EVENTBRIDGE_CONN_SHOP"] = kafka.connection
    lines = tmp_path / "made" / "crm.jsonl"
    sending.rules(
        web="/healthy/crm",
        lines=f"{{type: file, path: {lines}}}",
        topic="{type: kafka, connection: shop, topic: crm}",
    )

    assert [check_target(sending.runtime, "orders", name) for name in ("web", "lines", "topic")] == [None] * 3
    assert (sending.requests(), lines.parent.exists()) == ([], False)
    responses = [send_event(sending.runtime, "orders", name, order("1")) for name in ("web", "lines", "topic")]
    assert [response.accepted for response in responses] == [True] * 3
    assert (len(sending.requests()), len(lines.read_bytes().splitlines())) == (1, 1)
    assert audit(sending.runtime).deliveries == {}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (http(REFUSED), "ConnectionRefused: "),
        (http("http://nowhere.invalid/x"), "HostUnknown: "),
        (http("http://10.0.0.1/x"), "AddressRefused: "),
        ("{type: file, path: taken/crm.jsonl}", "is a file, so it cannot be a folder of"),
        ("{type: kafka, connection: shop, topic: trains}", "Create the topic, or correct topics"),
        ("{type: kafka, connection: wrong, topic: crm}", "Correct login, password"),
    ],
)
def test_the_reason_for_an_unreachable_target_is_reported(
    sending: Sending, kafka: Kafka, target: str, said: str
) -> None:
    """Name, network, address, file, topic, login: each with its own message."""
    (sending.site.folder / "taken").touch()
    sending.site.environ["EVENTBRIDGE_CONN_SHOP"] = kafka.connection
    port = kafka.ports["secure"]
    sending.site.environ["EVENTBRIDGE_CONN_WRONG"] = (
        f"kafka://flights:wrong@127.0.0.1:{port}/?ssl.ca.location={str(kafka.ca).replace('/', '%2F')}"
    )
    sending.rules(crm=target)

    found = check_target(sending.runtime, "orders", "crm")
    assert found is not None
    assert said in found


def test_topics_of_rocketmq_are_tried(sending: Sending, rocketmq: RocketMQ, order: Order) -> None:
    """An existing one takes an event; a missing one, and servers that are down, are errors."""
    make_rocketmq_topics(rocketmq, "crm")
    sending.site.environ["EVENTBRIDGE_CONN_SHOP"] = rocketmq.connection
    sending.site.environ["EVENTBRIDGE_CONN_WRONG"] = "rocketmq://127.0.0.1:1"
    sending.rules(
        there="{type: rocketmq, connection: shop, topic: crm}",
        nowhere="{type: rocketmq, connection: shop, topic: trains}",
        down="{type: rocketmq, connection: wrong, topic: crm}",
    )

    found = [check_target(sending.runtime, "orders", name) for name in ("there", "nowhere", "down")]
    assert found[0] is None
    assert "Create the topic" in (found[1] or "")
    assert "Start the name servers" in (found[2] or "")
    assert send_event(sending.runtime, "orders", "there", order("1")).accepted


def test_buckets_are_tried(sending: Sending, s3_server: S3Server, order: Order) -> None:
    """An existing one takes an event; a missing one, wrong keys, and a server that is down, are errors."""
    sending.site.environ["EVENTBRIDGE_CONN_LAKE"] = s3_server.connection
    sending.site.environ["EVENTBRIDGE_CONN_DOWN"] = connection_uri(1)
    folder = uuid.uuid4().hex
    sending.rules(
        there=f"{{type: s3, connection: lake, bucket: tests, prefix: {folder}}}",
        nowhere="{type: s3, connection: lake, bucket: nowhere}",
        down="{type: s3, connection: down, bucket: tests}",
    )

    found = [check_target(sending.runtime, "orders", name) for name in ("there", "nowhere", "down")]
    assert found[0] is None
    assert "the bucket does not exist. Create the bucket" in (found[1] or "")
    assert "Could not connect" in (found[2] or "")
    assert send_event(sending.runtime, "orders", "there", order("1")).accepted
    s3_server.refuse = lambda request: "SignatureDoesNotMatch"
    assert "Correct the password of the connection" in (check_target(sending.runtime, "orders", "there") or "")


def test_a_response_is_shown_as_it_is(sending: Sending, order: Order) -> None:
    """A target that refuses gets one request; its breaker does not count it."""
    sending.rules(crm="/status/503")

    response = send_event(sending.runtime, "orders", "crm", order("1"))
    assert (response.accepted, response.code) == (False, 503)
    assert sending.runtime.ledger.targets.statuses() == {}


def test_an_unsendable_test_event_is_reported(sending: Sending) -> None:
    """A missing rule, or a text that is not an event."""
    sending.rules(crm="/healthy/crm")

    with pytest.raises(NotFoundError, match="Did you mean orders"):
        check_target(sending.runtime, "order", "crm")
    with pytest.raises(EventError, match=r"This is not an event: \$\.source"):
        send_event(sending.runtime, "orders", "crm", b'{"specversion": "1.0", "id": "1", "type": "t"}')
