"""What only Kafka has: transactions, compaction, retention of its own, partitions that are added, passwords and TLS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer
from contracts.log_sources import offsets
from demo.ports import reserve
from services.cut_proxy import CutProxy
from services.kafka import PASSWORD, USER, Kafka, add_partitions, drop_before, make_topics
from services.tokens import token_endpoint

from eventbridge.clients.kafka import client
from eventbridge.clients.kafka.client import client_settings
from eventbridge.config.connection import Connection
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.testing.sources import messages_of

PARTITION = Partition("flights", "", 0)


def now() -> datetime:
    return datetime.now(UTC)


def opened(connection: Connection, topic: str = "flights") -> KafkaLog:
    return KafkaLog(client_settings(connection), [topic], clock=now)


def secure(kafka: Kafka, **changes: str) -> Connection:
    """Return the connection by password over TLS, but for some changes; what is empty is left out."""
    extra = {"ssl.ca.location": str(kafka.ca), "login": USER, "password": PASSWORD} | changes
    login, password = extra.pop("login"), extra.pop("password")
    extra = {name: value for name, value in extra.items() if value}
    return Connection("shop", "kafka", "127.0.0.1", kafka.ports["secure"], login, password, extra=extra)


@pytest.fixture
def log(kafka: Kafka) -> Iterator[KafkaLog]:
    """Open a topic of one partition that was made just now."""
    make_topics(kafka, "flights")
    with closing(opened(Connection("shop", "kafka", "127.0.0.1", kafka.ports["open"]))) as log:
        yield log


def test_transactions_are_read_once_they_are_committed(kafka: Kafka, log: KafkaLog) -> None:
    """Uncommitted messages and transaction markers are gaps, also at a range's end, and delay no reader."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "tests", "linger.ms": 0})
    producer.init_transactions(10)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(3):
            producer.produce("flights", str(number).encode(), partition=0)
        producer.flush(10)
        if end == producer.abort_transaction:
            assert log.end(PARTITION) == 4, "an open transaction is not there yet"
        end(10)
    log.publish([(b"after", None)])

    begun = time.monotonic()
    assert (log.end(PARTITION), offsets(log, PARTITION, 0, 9)) == (9, [0, 1, 2, 8])
    assert offsets(log, PARTITION, 0, 4) == [0, 1, 2]
    assert offsets(log, PARTITION, 3, 8) == []
    assert time.monotonic() - begun < 5


def test_a_range_may_end_with_marks_where_the_log_ends(kafka: Kafka, log: KafkaLog) -> None:
    """No message ever comes behind them, and the read ends all the same."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "tests"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("flights", b"1", partition=0)
    producer.commit_transaction(10)

    begun = time.monotonic()
    assert (log.end(PARTITION), offsets(log, PARTITION, 0, 2), offsets(log, PARTITION, 1, 2)) == (2, [0], [])
    assert time.monotonic() - begun < 5


def test_ranges_are_read_one_behind_the_other(log: KafkaLog) -> None:
    """What the client fetched beyond a range is the beginning of the next one, also once the log has grown."""
    log.publish([(str(number).encode(), None) for number in range(20)])
    assert [offsets(log, PARTITION, start, end) for start, end in ((0, 7), (7, 8), (8, 15))] == [
        list(range(7)),
        [7],
        list(range(8, 15)),
    ]
    assert offsets(log, PARTITION, 15, 20) == list(range(15, 20))
    log.publish([(b"more", None) for _ in range(5)])

    assert offsets(log, PARTITION, 20, 25) == list(range(20, 25))
    assert offsets(log, PARTITION, 3, 5) == [3, 4]


def test_a_compacted_message_is_a_gap(kafka: Kafka) -> None:
    """Of each key the last message is kept; the others are left out silently."""
    kept = Partition("kept", "", 0)
    settings = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
    make_topics(kafka, "kept", **settings)
    with closing(opened(Connection("shop", "kafka", "127.0.0.1", kafka.ports["open"]), "kept")) as log:
        deadline = time.monotonic() + 60
        log.publish([(str(number).encode(), "a") for number in range(10)])
        while len(found := offsets(log, kept, 0, 10)) > 1 and time.monotonic() < deadline:
            log.publish([(b"later", "b")])  # a segment is closed by the next message

    assert found in ([], [9])


def test_a_topic_keeps_what_it_keeps(kafka: Kafka, log: KafkaLog) -> None:
    """Messages dropped by retention are left out, and the read begins with the first that exists."""
    log.publish([(str(number).encode(), None) for number in range(10)])
    drop_before(log.uri, {PARTITION: 6})

    assert log.earliest(PARTITION) == 6
    assert offsets(log, PARTITION, 0, 9) == [6, 7, 8]
    assert offsets(log, PARTITION, 0, 5) == []


def test_partitions_may_be_added(kafka: Kafka, log: KafkaLog) -> None:
    """The next question for partitions returns them, and they can be read and published to."""
    log.publish([(b"1", None)])
    add_partitions(kafka, "flights", 3)

    assert len(log.partitions()) == len(log.ends()) == 3
    positions = log.publish([(b"2", None)] * 3)
    assert {partition.partition_id for partition, _ in positions} == {0, 1, 2}


def test_headers_and_tombstones_come_along(kafka: Kafka, log: KafkaLog) -> None:
    """A name may come several times, a value may be missing, and so may a body."""
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce("flights", None, b"k", headers=[("a", b"1"), ("a", None)])
    producer.produce("flights", b"", None)
    producer.flush(10)

    first, second = messages_of(log.read(PARTITION, 0, 2))
    assert (first.body, first.key, first.headers) == (None, b"k", [("a", b"1"), ("a", None)])
    assert (second.body, second.key, second.headers or []) == (b"", None, [])


@pytest.fixture(scope="module")
def tokens() -> Iterator[str]:
    """Run a token endpoint that knows the broker's user, and yield its URL."""
    with token_endpoint(USER, PASSWORD) as url:
        yield url


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def by_mechanism(mechanism: str, tokens: str) -> dict[str, str]:
    """Return what an extra holds for a mechanism."""
    extra = {"sasl.mechanism": mechanism}
    return extra | {"sasl.oauthbearer.token.endpoint.url": tokens} if mechanism == "OAUTHBEARER" else extra


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_over_tls(kafka: Kafka, log: KafkaLog, tokens: str, mechanism: str) -> None:
    """By each mechanism, password and CA certificate by the connection: reads, publishes, commits."""
    with closing(opened(secure(kafka, **by_mechanism(mechanism, tokens)))) as secured:
        secured.publish([(b"1", "a")])
        secured.commit("crm", {PARTITION: 1})
        found = offsets(secured, PARTITION, 0, 1)

    assert (found, log.committed("crm")) == ([0], {PARTITION: 1})


Ask = Callable[[KafkaLog], object]
ASK: dict[str, Ask] = {
    "partitions": lambda log: log.partitions(),
    "publish": lambda log: log.publish([(b"1", None)]),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"password": "a wrong one"}, r"\(_AUTHENTICATION\)\. Correct login, password"),
        ({"login": "nobody"}, r"\(_AUTHENTICATION\)\. Correct login, password"),
        ({"password": "a wrong one", "sasl.mechanism": "SCRAM-SHA-512"}, r"\(_AUTHENTICATION\)\. Correct login"),
        ({"password": "a wrong one", "sasl.mechanism": "OAUTHBEARER"}, r"\(_AUTHENTICATION\)\. Correct login"),
        (
            {"ssl.ca.location": ""},
            r"\(_SSL\)\. Renew the broker's certificate if it has expired, or correct the TLS files of the connection",
        ),
    ],
)
def test_a_refused_login_is_an_error_at_once(
    kafka: Kafka, tokens: str, changes: dict[str, str], said: str, ask: Ask
) -> None:
    """With what to correct, and without the password."""
    changes = by_mechanism(changes.get("sasl.mechanism", "PLAIN"), tokens) | changes
    begun = time.monotonic()
    with closing(opened(secure(kafka, **changes))) as log, pytest.raises(BusError, match=said) as caught:
        ask(log)

    assert time.monotonic() - begun < 10
    assert "a wrong one" not in str(caught.value)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_a_missing_topic_is_named(kafka: Kafka, ask: Ask) -> None:
    """And what to do."""
    connection = Connection("shop", "kafka", kafka.servers)
    with closing(opened(connection, "trains")) as log, pytest.raises(BusError, match=r"'trains'.*Create the topic, or"):
        ask(log)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_a_broker_that_is_down_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as long as a response may take."""
    monkeypatch.setattr(client, "RESPONSE_SECONDS", 2.0)
    connection = Connection("shop", "kafka", "127.0.0.1", reserve())
    with closing(opened(connection)) as log, pytest.raises(BusError, match=r"127\.0\.0\.1.*Start the brokers"):
        ask(log)


def test_a_group_with_members_is_left_to_them(kafka: Kafka, log: KafkaLog) -> None:
    """Kafka refuses a commit from outside; what to do is said."""
    log.publish([(b"1", None)])
    member = Consumer({"bootstrap.servers": kafka.servers, "group.id": "taken", "auto.offset.reset": "earliest"})
    member.subscribe(["flights"])
    assert member.poll(20) is not None
    with closing(member), pytest.raises(BusError, match="give the runner another name"):
        log.commit("taken", {PARTITION: 1})


def test_half_a_response_is_an_error_or_asked_for_again(
    kafka: Kafka, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker closes connections within responses: the client returns a correct response or none."""
    monkeypatch.setattr(client, "RESPONSE_SECONDS", 1.0)
    log.publish([(str(number).encode(), None) for number in range(10)])
    with CutProxy(kafka.ports["behind"], kafka.ports["proxy"]) as proxy:
        proxy.cut = lambda number: number % 7 == 0
        connection = Connection("shop", "kafka", "127.0.0.1", kafka.ports["proxy"])
        for _ in range(10):
            with closing(opened(connection)) as broken, suppress(BusError):
                assert (broken.end(PARTITION), broken.earliest(PARTITION)) == (10, 0)
        assert proxy.done > 3
        proxy.cut = lambda number: False
        with closing(opened(connection)) as whole:
            assert (whole.end(PARTITION), whole.earliest(PARTITION)) == (10, 0)
