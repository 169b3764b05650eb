"""Publishes to topics of a Kafka cluster, and waits until every record is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbridge import fault_points
from eventbridge.clients.kafka.client import QUIET, RESPONSE_SECONDS, ClientErrors, bus_error
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.tables import partition_of_key

_SETTINGS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "delivery.timeout.ms": 30_000,
    "message.max.bytes": 16 << 20,
    "linger.ms": 2,
}
#: The maximum size of a batch, librdkafka's default; brokers refuse a batch above max.message.bytes.
_BATCH_BYTES: Final = 1_000_000
#: The header that marks a message as a CloudEvent in structured mode, for other consumers.
_HEADERS: Final = [("content-type", b"application/cloudevents+json; charset=UTF-8")]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class IdempotentPublisher:
    """An idempotent producer, opened on first use; threads may share it."""

    def __init__(
        self, settings: Mapping[str, Any], clock: Callable[[], datetime], max_bytes: Callable[[], int | None]
    ) -> None:
        """Store the settings; `max_bytes`, called once, returns the maximum size of a batch, or None if unknown."""
        self._settings = settings
        self._max_bytes = max_bytes
        self._clock = clock
        self._client_errors = ClientErrors()
        self._producer: Producer | None = None
        self._turns = count()
        self._opening = Lock()

    def publish(
        self, partitions: Sequence[Partition], records: Sequence[tuple[bytes, str | None]]
    ) -> list[tuple[Partition, int]]:
        """Append records to the partitions of one topic, by key or round-robin, and return the position of each."""
        fault_points.reach("bus.publish")
        producer = self._open()
        at = (self._clock() - _EPOCH) // _MILLISECOND
        sent = _Acknowledgements(len(records))
        for index, (body, key) in enumerate(records):
            number = next(self._turns) % len(partitions) if key is None else partition_of_key(key, len(partitions))
            raw = None if key is None else key.encode("utf-8", "surrogatepass")
            self._send(producer, partitions[number], (body, raw, at), sent.callback(index, partitions[number]))
        while sent.remaining and self._client_errors.fatal is None:
            producer.poll(0.05)
        failed = self._client_errors.fatal if sent.remaining else sent.failed
        if failed is not None:
            raise bus_error(
                str(self._settings["bootstrap.servers"]), f"cannot publish to {partitions[0].topic!r}", failed
            )
        fault_points.reach("bus.publish.done")
        return sent.positions()

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._producer = None

    def _open(self) -> Producer:
        with self._opening:
            if self._producer is None:
                most = min(_BATCH_BYTES, self._max_bytes() or _BATCH_BYTES)
                own = {"batch.size": max(1, most), "error_cb": self._client_errors}
                self._producer = Producer({**self._settings, **QUIET, **_SETTINGS, **own})
            return self._producer

    def _send(
        self, producer: Producer, partition: Partition, record: tuple[bytes, bytes | None, int], callback: Any
    ) -> None:
        body, key, at = record
        end = time.monotonic() + RESPONSE_SECONDS
        while True:
            try:
                producer.produce(
                    partition.topic,
                    body,
                    key,
                    partition=partition.partition_id,
                    on_delivery=callback,
                    timestamp=at,
                    headers=_HEADERS,
                )
                return
            except BufferError:  # the client's queue is full; wait while it sends
                producer.poll(0.05)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION and time.monotonic() < end:
                    self._refresh_topic(
                        producer, partition.topic
                    )  # the partition was added since the client's last refresh
                    continue
                servers = str(self._settings["bootstrap.servers"])
                raise bus_error(servers, f"cannot publish to {partition.topic!r}", error.args[0]) from None

    def _refresh_topic(self, producer: Producer, topic: str) -> None:
        with suppress(KafkaException):
            producer.list_topics(topic, timeout=RESPONSE_SECONDS)


class _Acknowledgements:
    """The delivery reports of one call's records; the thread that polls the producer fills them."""

    def __init__(self, number: int) -> None:
        self.failed: KafkaError | None = None
        self._positions: list[tuple[Partition, int] | None] = [None] * number
        self._left = number
        self._lock = Lock()

    @property
    def remaining(self) -> int:
        """Return the number of records without a report."""
        return self._left

    def callback(self, index: int, partition: Partition) -> Callable[[KafkaError | None, Message], None]:
        """Return the delivery callback of a record."""

        def note(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                self._left -= 1
                if error is not None:
                    self.failed = self.failed or error
                else:
                    self._positions[index] = partition, int(message.offset() or 0)

        return note

    def positions(self) -> list[tuple[Partition, int]]:
        """Return the position of each record, in order."""
        found = [position for position in self._positions if position is not None]
        if len(found) < len(self._positions):
            raise BusError("Kafka did not return the position of each record")
        return found
