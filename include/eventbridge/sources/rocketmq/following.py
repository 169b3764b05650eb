"""Follows partitions of RocketMQ: one thread per broker keeps a long-polling pull request open."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.errors import RemotingError
from eventbridge.clients.rocketmq.remoting.messages import IncomingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue
from eventbridge.clients.rocketmq.remoting.reading import followed
from eventbridge.clients.rocketmq.settings import bus_error
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.fetched import MAX_BYTES, FetchedMessages
from eventbridge.sources.rocketmq.blocks import blocks_of

log = logging.getLogger(__name__)

#: The time that a thread waits before it queries an unresponsive broker again, and between two checks whether its
#: reader has caught up.
_AGAIN_SECONDS: Final = 3.0
_FULL_SECONDS: Final = 0.01


class PartitionFollower:
    """A reader that pulls from partitions from given offsets on; only one thread at a time may use it."""

    def __init__(self, client: Client, servers: str, positions: Mapping[Partition, int]) -> None:
        self._client, self._servers = client, servers
        self._fetched: dict[Partition, FetchedMessages[IncomingMessage]] = {
            partition: FetchedMessages(at, at) for partition, at in positions.items()
        }
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._failed: dict[str, BusError] = {}  # brokers that currently do not respond
        by_broker: dict[str, list[Partition]] = defaultdict(list)
        for partition in positions:
            by_broker[partition.broker].append(partition)
        self._threads = [
            threading.Thread(target=self._run, args=each, name=f"follow {each[0]}", daemon=True)
            for each in by_broker.items()
        ]
        for thread in self._threads:
            thread.start()

    def ends(self) -> dict[Partition, int]:
        """Return the offset up to which each partition was fetched; never waits. Raises BusError if no broker is up."""
        if self._threads and len(self._failed) == len(self._threads):
            raise next(iter(self._failed.values()))
        with self._lock:
            return {partition: fetched.end for partition, fetched in self._fetched.items()}

    def holds(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a whole range was fetched and is still cached."""
        with self._lock:
            return partition in self._fetched and self._fetched[partition].holds(start, end)

    def blocks(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the fetched messages of a range, and drop those before it."""
        with self._lock:
            found = self._fetched[partition].take(start, end)
        yield from blocks_of([found])

    def close(self) -> None:
        """Stop the threads, and wait until they have closed their connections."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, broker: str, partitions: Sequence[Partition]) -> None:
        while not self._over.is_set():
            try:
                self._follow(broker, partitions)
            except RemotingError as error:
                self._failed[broker] = bus_error(self._servers, f"cannot follow partitions of {broker}", error)
                log.warning("%s", self._failed[broker])
                self._over.wait(_AGAIN_SECONDS)

    def _follow(self, broker: str, partitions: Sequence[Partition]) -> None:
        positions = {TopicQueue(*partition): self._fetched[partition].end for partition in partitions}
        connection = self._client.open_to(next(iter(positions)))
        try:
            for partition, messages, end in followed(
                connection, self._client.settings.read_group, positions, self._over.is_set
            ):
                self._failed.pop(broker, None)
                if partition is None:
                    continue
                with self._lock:
                    fetched = self._fetched[Partition(*partition)]
                    for message in messages:
                        fetched.put(message.offset, len(message.body), message)
                    fetched.reach(end)
                while self._size > MAX_BYTES and not self._over.wait(_FULL_SECONDS):
                    pass
        finally:
            connection.close()

    @property
    def _size(self) -> int:
        with self._lock:
            return sum(fetched.size for fetched in self._fetched.values())
