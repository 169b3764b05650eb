"""Implements a queue on a topic of a RocketMQ cluster in pop mode, in which the brokers track each message."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.popping import MAX_AT_ONCE, PopConsumer, PoppedMessage
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.clients.rocketmq.settings import as_bus_errors, client_settings
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.messages import RECEIVED
from eventbridge.sources.open import SourceSetup
from eventbridge.sources.rocketmq.blocks import headers_of
from eventbridge.sources.rocketmq.fields import RocketmqFields
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.sources.rocketmq.publishing import MessagePublisher

#: A block that has reached this size is returned without a request for more messages.
_BLOCK_BYTES: Final = 4 << 20
#: After this many consecutive empty responses, a broker counts as empty. One is not enough, because the broker may just
#: be serving other consumers.
_EMPTY_RESPONSES: Final = 3


class PopMode(NamedTuple):
    """The settings of pop mode: consumer group, visibility timeout, and where a new group starts."""

    group: str
    visibility_timeout: float
    from_end: bool


class RocketmqQueue:
    """A queue source for the first topic, and a publisher to all topics.

    It connects on first use. Raises BusError with a remedy if servers do not respond or reject the request.
    """

    kind: Literal["queue"] = "queue"

    def __init__(self, settings: ClientSettings, topics: Sequence[str], mode: PopMode) -> None:
        self._servers = ",".join(settings.name_servers)
        self._topics = tuple(topics)
        self._mode = mode
        self._client = Client(settings)
        self._popping = PopConsumer(
            self._client, self._topics[0], mode.group, mode.visibility_timeout, from_end=mode.from_end
        )
        self._publishing = MessagePublisher(self._client, self._servers)

    @property
    def uri(self) -> str:
        """Return `rocketmq://`, the name servers that the connection names, and the topic."""
        return f"rocketmq://{self._servers}/{self._topics[0]}"

    @property
    def visibility_timeout(self) -> float:
        """Return the number of seconds for which a received message is invisible to other receivers."""
        return self._mode.visibility_timeout

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` messages that the brokers deliver now, as one block of `RECEIVED`."""
        fault_points.reach("bus.receive")
        found: list[PoppedMessage] = []
        with self._doing("cannot receive messages of"):
            for broker in self._popping.brokers():
                empty = 0
                while empty < _EMPTY_RESPONSES and len(found) < at_most and _size(found) < _BLOCK_BYTES:
                    some = self._popping.pop(broker, min(MAX_AT_ONCE, at_most - len(found)))
                    found += some
                    empty = 0 if some else empty + 1
        return _block(found)

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, and return their new receipts."""
        with self._doing("cannot extend the visibility timeout of messages of"):
            return self._popping.extend(receipts)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Acknowledge messages; expired receipts are ignored."""
        fault_points.reach("bus.acknowledge")
        with self._doing("cannot acknowledge messages of"):
            self._popping.acknowledge(receipts)
        fault_points.reach("bus.acknowledge.done")

    def waiting(self) -> int:
        """Return the approximate number of unacknowledged messages."""
        with self._doing("cannot count the messages in"):
            return self._popping.waiting()

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each."""
        topic = self._topics[0] if topic is None else topic
        if topic not in self._topics:
            raise BusError(f"{self.uri}: topic {topic!r} is not open. Open topics: {', '.join(self._topics)}")
        return self._publishing.publish(topic, records)

    def close(self) -> None:
        """Close the connections to name servers and brokers."""
        self._client.close()

    def _doing(self, action: str) -> AbstractContextManager[None]:
        return as_bus_errors(self._servers, f"{action} {self._topics[0]!r}")


def _size(messages: Sequence[PoppedMessage]) -> int:
    return sum(len(each.message.body) for each in messages)


def _block(popped: Sequence[PoppedMessage]) -> pa.RecordBatch:
    messages = [each.message for each in popped]
    keys = [message.properties.get("KEYS") for message in messages]
    headers = [headers_of(message.properties) for message in messages]
    columns: list[list[object]] = [
        [each.receipt for each in popped],
        [each.message_id for each in popped],
        [message.stored_at * 1_000 for message in messages],
        [None if key is None else key.encode("utf-8", "replace") for key in keys],
        [[{"name": name, "value": value} for name, value in each] or None for each in headers],
        [message.body for message in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECEIVED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECEIVED)


def open_rocketmq(opening: SourceSetup[RocketmqFields]) -> RocketmqLog | RocketmqQueue:
    """Open the source's topics, without sending a request to the servers. Raises ConnectionUnusable."""
    source = opening.source
    settings = client_settings(opening.connections(source.connection))
    if not source.is_queue:
        return RocketmqLog(settings, source.topics)
    mode = PopMode(source.group or opening.bus, source.visibility_timeout, source.start_at != "earliest")
    return RocketmqQueue(settings, source.topics, mode)
