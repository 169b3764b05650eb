"""A common interface of a Kafka broker and a RocketMQ, for tests that run on both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

import pytest
from services.kafka import Kafka, add_partitions, drop_before
from services.kafka import make_topics as make_kafka_topics
from services.rocketmq import RocketMQ, begin_file, drop_old_files, set_partitions
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge.clients.kafka.client import client_settings as kafka_settings
from eventbridge.clients.rocketmq.settings import client_settings as rocketmq_settings
from eventbridge.config.connection import Connection
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.testing.sources import Message, messages_of


@dataclass(frozen=True)
class OnKafka:
    """A Kafka broker, for a test that runs on each kind."""

    server: Kafka
    kind: ClassVar[str] = "kafka"
    #: A connection to an address without a server, and the errors of connecting to it.
    unreachable: ClassVar[tuple[str, str]] = ("kafka://nobody:wrong@127.0.0.1:1", "Timeout")
    #: The tag of the page's example, if messages have tags.
    tag: ClassVar[bytes | None] = None

    def make_topics(self, *topics: str, partitions: int = 1) -> None:
        """Create empty topics; recreate existing ones."""
        make_kafka_topics(self.server, *topics, partitions=partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions of a topic."""
        add_partitions(self.server, topic, partitions)

    def open(self, topic: str) -> KafkaLog:
        """Open a topic as a log."""
        settings = kafka_settings(Connection("shop", "kafka", self.server.servers))
        return KafkaLog(settings, [topic], clock=lambda: datetime.now(UTC))

    def dropper(self, topic: str) -> Callable[[], None]:
        """Return a function that drops the messages that a topic has now."""
        with closing(self.open(topic)) as log:
            ends = log.ends()
        return lambda: drop_before(f"kafka://{self.server.servers}", ends)

    def bound_messages(self, topic: str) -> None:
        """Recreate a topic with a limit of 20,000 bytes per message."""
        make_kafka_topics(self.server, topic, **{"max.message.bytes": "20000"})

    def delivery_id(self, message: Message) -> bytes:
        """Return the delivery id that a target added to a message."""
        return dict(message.headers or ())["eventbridge-delivery-id"] or b""


@dataclass(frozen=True)
class OnRocketmq:
    """A RocketMQ, for a test that runs on each kind."""

    server: RocketMQ
    kind: ClassVar[str] = "rocketmq"
    unreachable: ClassVar[tuple[str, str]] = ("rocketmq://127.0.0.1:1", "NetworkError")
    tag: ClassVar[bytes | None] = b"placed"

    def make_topics(self, *topics: str, partitions: int = 1) -> None:
        """Create empty topics; recreate existing ones."""
        make_rocketmq_topics(self.server, *topics, partitions=partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions of a topic."""
        set_partitions(self.server, topic, partitions)

    def open(self, topic: str) -> RocketmqLog:
        """Open a topic as a log."""
        return RocketmqLog(rocketmq_settings(Connection("shop", "rocketmq", self.server.servers)), [topic])

    def dropper(self, _: str) -> Callable[[], None]:
        """Return a function that drops the messages that the broker has now."""
        begin_file(self.server)
        begun = datetime.now(UTC)
        return lambda: drop_old_files(self.server, begun)

    def bound_messages(self, _: str) -> None:
        """Do nothing: a broker accepts at most 32,767 bytes of properties."""

    def delivery_id(self, message: Message) -> bytes:
        """Return the delivery id that a target added to a message."""
        return message.key or b""


Broker = OnKafka | OnRocketmq
KINDS: dict[str, Callable[[pytest.FixtureRequest], Broker]] = {
    "kafka": lambda request: OnKafka(request.getfixturevalue("kafka")),
    "rocketmq": lambda request: OnRocketmq(request.getfixturevalue("rocketmq")),
}


def messages(broker: Broker, topic: str) -> list[list[Message]]:
    """Return the messages of each partition of a topic."""
    with closing(broker.open(topic)) as log:
        return [list(messages_of(log.read(partition, 0, end))) for partition, end in log.ends().items()]
