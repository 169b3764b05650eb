"""What only RocketMQ has: properties, compressed bodies, several name servers, access keys and TLS, its own tools."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from contracts.log_sources import offsets
from demo.ports import reserve
from services.rocketmq import BROKER, PASSWORD, USER, RocketMQ, make_topics, set_partitions

from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue
from eventbridge.clients.rocketmq.remoting.sending import send_request
from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.config.connection import Connection
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.testing.sources import messages_of

PARTITION = Partition("flights", BROKER, 0)


def opened(server: RocketMQ, topic: str = "flights", **fields: object) -> RocketmqLog:
    settings = client_settings(Connection("shop", "rocketmq", server.servers, **fields))  # type: ignore[arg-type]
    return RocketmqLog(replace(settings, timeout_seconds=5.0), [topic])


@pytest.fixture
def log(rocketmq: RocketMQ) -> Iterator[RocketmqLog]:
    """Open a topic of one partition that was made just now."""
    make_topics(rocketmq, "flights")
    with closing(opened(rocketmq)) as log:
        yield log


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A broker whose requests must be signed, with a topic."""
    with RocketMQ(tmp_path_factory.mktemp("secured"), secured=True) as server:
        make_topics(server, "flights")
        yield server


def wait_for_end(log: RocketmqLog, end: int) -> None:
    """Return when what a client of its own sent can be read: a broker's partitions follow its log by milliseconds."""
    until = time.monotonic() + 10
    while log.end(PARTITION) < end:
        assert time.monotonic() < until, "the broker's partition does not follow its log"


def test_a_long_range_is_read_in_order(log: RocketmqLog) -> None:
    """Many pulls are on their way at a time, and a broker responds to each with as much as it likes."""
    bodies = [str(number).encode() * (1 + number % 300) for number in range(6_000)]
    log.publish([(body, "a") for body in bodies])

    assert [message.body for message in messages_of(log.read(PARTITION, 0, 6_000))] == bodies
    assert offsets(log, PARTITION, 17, 5_431) == list(range(17, 5_431))


def test_properties_come_along(rocketmq: RocketMQ, log: RocketmqLog) -> None:
    """Tags and keys by their names, CloudEvents' attributes as headers have them; what the bus says itself does not."""
    properties = {"TAGS": "late", "KEYS": "LH400 LH401", "CE_type": "order", "CE_contenttype": "text/plain", "a": "ü"}
    with closing(rocketmq.client()) as client:
        client.send(TopicQueue(*PARTITION), OutgoingMessage(b"1", properties))
        client.send(TopicQueue(*PARTITION), OutgoingMessage(b"2"))
    wait_for_end(log, 2)

    first, second = messages_of(log.read(PARTITION, 0, 2))
    assert dict(first.headers or ()) == {
        "TAGS": b"late",
        "KEYS": b"LH400 LH401",
        "ce_type": b"order",
        "content-type": b"text/plain",
        "a": "ü".encode(),
    }
    assert (first.key, second.key, second.headers or []) == (b"LH400 LH401", None, [])


def test_a_compressed_body_is_read_as_it_was(rocketmq: RocketMQ, log: RocketmqLog) -> None:
    """Producers of RocketMQ's own compress what is longer than 4 KiB."""
    text = b'{"amount": 10}' * 1_000
    code, fields, body = send_request(TopicQueue(*PARTITION), OutgoingMessage(zlib.compress(text)))
    with closing(rocketmq.client()) as client, closing(client.open_to(TopicQueue(*PARTITION))) as connection:
        connection.call(code, {**fields, "f": 1 | 3 << 8}, body)
    wait_for_end(log, 1)

    assert [message.body for message in messages_of(log.read(PARTITION, 0, 1))] == [text]


def test_partitions_may_be_added(rocketmq: RocketMQ, log: RocketmqLog) -> None:
    """The next question for partitions returns them, and they can be read and published to."""
    log.publish([(b"1", None)])
    set_partitions(rocketmq, "flights", 3)

    assert len(log.partitions()) == len(log.ends()) == 3
    with closing(opened(rocketmq)) as other:
        positions = other.publish([(b"2", None)] * 3)
    assert {partition.partition_id for partition, _ in positions} == {0, 1, 2}


def test_the_tools_of_rocketmq_show_the_lag(rocketmq: RocketMQ, log: RocketmqLog) -> None:
    """Of a group that no consumer ever joined."""
    log.publish([(b"1", None)] * 5)
    log.commit("crm", {PARTITION: 2})

    said = rocketmq.admin("consumerProgress", "-g", "crm", "-t", "flights")
    (line,) = [line.split() for line in said.splitlines() if line.startswith("flights ")]
    assert line[1:6] == [BROKER, "0", "5", "2", "3"]


def test_a_name_server_that_is_down_is_passed_over(rocketmq: RocketMQ, log: RocketmqLog) -> None:
    """The next one is asked."""
    connection = Connection("shop", "rocketmq", f"127.0.0.1:{reserve()};{rocketmq.servers}")
    with closing(RocketmqLog(client_settings(connection), ["flights"])) as other:
        assert list(other.partitions()) == [PARTITION]


def test_a_login_over_tls(secured: RocketMQ) -> None:
    """Access key, secret key and CA certificate by the connection: publishes, reads, commits."""
    extra = {"ca_certificate": str(secured.ca)}
    with closing(opened(secured, login=USER, password=PASSWORD, extra=extra)) as log:
        log.publish([(b"1", "a")])
        log.commit("crm", {PARTITION: 1})
        assert offsets(log, PARTITION, log.end(PARTITION) - 1, log.end(PARTITION))
        assert log.committed("crm") == {PARTITION: 1}


Ask = Callable[[RocketmqLog], object]
ASK: dict[str, Ask] = {
    "end": lambda log: log.end(PARTITION),
    "publish": lambda log: log.publish([(b"1", None)]),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"login": USER, "password": "a wrong one"}, r"\(NO_PERMISSION\)\. Correct login and password"),
        ({"login": "nobody", "password": "a wrong one"}, r"\(NO_PERMISSION\)\. Correct login and password"),
        ({}, r"\(NO_PERMISSION\)\. Correct login and password"),
        ({"extra": {"tls": True}}, r"TLS: .*Correct tls and ca_certificate"),
    ],
)
def test_a_refused_login_is_an_error_at_once(secured: RocketMQ, fields: dict[str, object], said: str, ask: Ask) -> None:
    """With what to correct, and without the password."""
    begun = time.monotonic()
    with closing(opened(secured, **fields)) as log, pytest.raises(BusError, match=said) as caught:
        ask(log)

    assert time.monotonic() - begun < 10
    assert "a wrong one" not in str(caught.value)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_a_missing_topic_is_named(rocketmq: RocketMQ, ask: Ask) -> None:
    """And what to do."""
    with closing(opened(rocketmq, "trains")) as log, pytest.raises(BusError, match=r"'trains'.*Create the topic,"):
        ask(log)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_servers_that_are_down_are_named(ask: Ask) -> None:
    """At once, with what to start or correct."""
    settings = client_settings(Connection("shop", "rocketmq", "127.0.0.1", reserve()))
    with closing(RocketmqLog(settings, ["flights"])) as log, pytest.raises(BusError, match=r"127.*Start the name serv"):
        ask(log)


def test_a_long_key_is_harmless(log: RocketmqLog) -> None:
    """It decides the partition; it is not among the properties, which a broker bounds."""
    positions = log.publish([(b"1", "k" * 70_000), (b"2", "short")])

    assert [offset for _, offset in positions] == [0, 1]
    assert [message.body for message in messages_of(log.read(PARTITION, 0, 2))] == [b"1", b"2"]
