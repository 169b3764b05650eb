"""The log sources of the contract, each with its clock, and what a test does to any of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from services.kafka import Kafka, drop_before, make_topics
from services.rocketmq import BROKER, RocketMQ, begin_file, drop_old_files
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.server import DatabaseBus
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.testing.sources import InMemoryLog, messages_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


TOPICS = ("orders", "returns")


PARTITIONS = 3


AnyLog = EmbeddedBus | DatabaseBus | InMemoryLog | KafkaLog | RocketmqLog


#: The shortest time that a log of a kind distinguishes, in microseconds.
RESOLUTION = {EmbeddedBus: 1, DatabaseBus: 1, InMemoryLog: 1, KafkaLog: 1_000, RocketmqLog: 1_000}


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def at(self, seconds: float) -> datetime:
        """Return a time so long after the start."""
        return START + timedelta(seconds=seconds)

    def took(self, at: datetime, seconds: float) -> bool:
        """Return whether a message of this time was taken so long after the start."""
        return at == self.at(seconds)


class BrokersClock(Clock):
    """The time of a broker that keeps its own: each moment that this clock is moved to stands for a real one.

    What the broker takes between two moves lies in one file of its, which it drops as a whole.
    """

    def __init__(self, server: RocketMQ) -> None:
        self._server = server
        self._moments = [(0.0, _next_millisecond())]

    @property
    def now(self) -> datetime:  # type: ignore[override]
        return self._moments[-1][1]

    def move(self, seconds: float) -> None:
        begin_file(self._server)
        self._moments.append((self._moments[-1][0] + seconds, _next_millisecond()))

    def drop(self, at: datetime) -> None:
        """Have the broker lose what it took before a moment."""
        drop_old_files(self._server, at)

    def at(self, seconds: float) -> datetime:
        real = [moment for since, moment in self._moments if since >= seconds]
        return real[0] if real else _next_millisecond()

    def took(self, at: datetime, seconds: float) -> bool:
        _, moment = max(each for each in self._moments if each[0] <= seconds)
        return moment <= at <= datetime.now(UTC)


def _next_millisecond() -> datetime:
    """Return the next whole millisecond once it has come."""
    until = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < until:
        pass
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=until)


#: A new source is one more line here; `publish` is how its test gets messages into it.
LOGS: dict[str, Callable[[pytest.FixtureRequest, Path, Clock], AnyLog]] = {
    "embedded": lambda _, folder, clock: EmbeddedBus(folder, "shop", topics=TOPICS, partitions=PARTITIONS, clock=clock),
    "memory": lambda _, folder, clock: InMemoryLog(topics=TOPICS, partitions=PARTITIONS, clock=clock),
    "database": lambda request, folder, clock: DatabaseBus(
        request.getfixturevalue("database"), folder.name, topics=TOPICS, partitions=PARTITIONS, clock=clock
    ),
    "kafka": lambda request, _, clock: kafka_log(request.getfixturevalue("kafka"), clock),
    "rocketmq": lambda request, _, __: rocketmq_log(request.getfixturevalue("rocketmq")),
}


def kafka_log(broker: Kafka, clock: Clock) -> KafkaLog:
    """Open topics of a broker that were made just now."""
    make_topics(broker, *TOPICS, partitions=PARTITIONS)
    return KafkaLog({"bootstrap.servers": broker.servers}, TOPICS, clock=clock)


def rocketmq_log(server: RocketMQ) -> RocketmqLog:
    """Open topics of a broker that were made just now."""
    make_rocketmq_topics(server, *TOPICS, partitions=PARTITIONS)
    return RocketmqLog(ClientSettings((server.servers,)), TOPICS)


def broker_of(log: AnyLog) -> str:
    """Return the broker on which a log has its partitions, "" if it has none."""
    return BROKER if isinstance(log, RocketmqLog) else ""


def publish(log: AnyLog, bodies: list[bytes], key: str = "a") -> list[int]:
    """Publish under one key and return the offsets."""
    return [offset for _, offset in log.publish([(body, key) for body in bodies])]


def offsets(log: AnyLog, partition: Partition, start: int, end: int) -> list[int]:
    """Read a range of a partition and return the offsets of its messages."""
    return [message.offset for message in messages_of(log.read(partition, start, end))]


def drop_older(log: AnyLog, at: datetime, clock: Clock) -> None:
    """Let the log lose what was published before a time, each kind in its way."""
    if isinstance(log, EmbeddedBus | DatabaseBus):
        log.trim(at)
    elif isinstance(log, KafkaLog):
        drop_before(log.uri, {partition: log.offset_at(partition, at) for partition in log.partitions()})
    elif isinstance(clock, BrokersClock):
        clock.drop(at)
    else:
        for partition in log.partitions():
            log.lose(partition, 0, log.offset_at(partition, at))
