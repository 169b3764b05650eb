"""Publishes to topics of a RocketMQ cluster; the records of a partition are sent in batches, in order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Final

from eventbridge import fault_points
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.errors import RemotingError
from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue, queue_of_key
from eventbridge.clients.rocketmq.settings import as_bus_errors
from eventbridge.model.partition import Partition

#: The maximum size of a batch; a broker accepts 4 MiB by default.
_BATCH_BYTES: Final = 256 << 10
_BATCH_MESSAGES: Final = 500
#: A longer key still decides the partition, but is not stored in the properties, whose size brokers limit.
_KEY_CHARACTERS: Final = 1_024
_MEDIA_TYPE: Final = "application/cloudevents+json; charset=UTF-8"
_HOLD_SECONDS: Final = 5.0
_READABLE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.002

_Numbered = tuple[int, OutgoingMessage]


class MessagePublisher:
    """Publishes through a client; threads may share it."""

    def __init__(self, client: Client, servers: str) -> None:
        self._client = client
        self._servers = servers
        self._turns = count()
        self._known: dict[str, tuple[list[TopicQueue], float]] = {}

    def publish(self, topic: str, records: Sequence[tuple[bytes, str | None]]) -> list[tuple[Partition, int]]:
        """Append records to the partitions of a topic, by key or round-robin, and return the position of each."""
        fault_points.reach("bus.publish")
        positions: dict[int, tuple[Partition, int]] = {}
        with as_bus_errors(self._servers, f"cannot publish to {topic!r}"):
            for partition, mine in self._group_by_partition(self._partitions(topic), records).items():
                for part in _parts(mine):
                    offsets = self._send(partition, [message for _, message in part])
                    positions |= {
                        index: (Partition(*partition), at) for (index, _), at in zip(part, offsets, strict=True)
                    }
            self._wait_until_readable(positions.values())
        fault_points.reach("bus.publish.done")
        return [positions[index] for index in range(len(records))]

    def _wait_until_readable(self, positions: Iterable[tuple[Partition, int]]) -> None:
        """Wait until messages can be read, a few milliseconds after brokers have acknowledged them.

        A caller that publishes and then delivers all waiting events must find them. They are durable in any case, so
        the wait is limited to a few seconds.
        """
        ends: dict[Partition, int] = {}
        for partition, offset in positions:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        until = time.monotonic() + _READABLE_SECONDS
        with suppress(RemotingError):  # a broker that has become unreachable has already acknowledged its messages
            for partition, end in ends.items():
                while self._client.end(TopicQueue(*partition)) < end and time.monotonic() < until:
                    time.sleep(_POLL_SECONDS)

    def _group_by_partition(
        self, partitions: Sequence[TopicQueue], records: Sequence[tuple[bytes, str | None]]
    ) -> dict[TopicQueue, list[_Numbered]]:
        found: dict[TopicQueue, list[_Numbered]] = {}
        for index, (body, key) in enumerate(records):
            partition = (
                partitions[next(self._turns) % len(partitions)] if key is None else queue_of_key(partitions, key)
            )
            properties = {"CE_contenttype": _MEDIA_TYPE}
            if key is not None and len(key) <= _KEY_CHARACTERS:
                properties["KEYS"] = key
            found.setdefault(partition, []).append((index, OutgoingMessage(body, properties)))
        return found

    def _send(self, partition: TopicQueue, messages: Sequence[OutgoingMessage]) -> Sequence[int]:
        if len(messages) == 1:
            return [self._client.send(partition, messages[0])]
        return self._client.send_batch(partition, messages)

    def _partitions(self, topic: str) -> Sequence[TopicQueue]:
        partitions, until = self._known.get(topic, ([], 0.0))
        if time.monotonic() >= until:
            partitions = self._client.queues(topic, to_write=True)
            self._known[topic] = partitions, time.monotonic() + _HOLD_SECONDS
        return partitions


def _parts(messages: Sequence[_Numbered]) -> Iterator[list[_Numbered]]:
    """Yield batches of messages, in order."""
    part: list[_Numbered] = []
    size = 0
    for each in messages:
        if part and (size + len(each[1].body) > _BATCH_BYTES or len(part) == _BATCH_MESSAGES):
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each[1].body)
    if part:
        yield part
