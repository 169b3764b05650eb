"""Implements a log on topics of a RocketMQ cluster: offsets, reading by range, publishing.

A message's time is when its broker stored it. Topics have no identity, so a recreated topic is recognised by its
messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from eventbridge import fault_points
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.clients.rocketmq.settings import as_bus_errors
from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.sources.rocketmq.blocks import blocks_of_bodies
from eventbridge.sources.rocketmq.following import PartitionFollower
from eventbridge.sources.rocketmq.publishing import MessagePublisher

#: The time for which the list of partitions is cached for `ends`.
_PARTITIONS_HOLD_SECONDS: Final = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class RocketmqLog:
    """A log source and publisher for topics of one cluster; it never creates topics.

    It connects on first use. Threads may share an instance; a forked process must open its own.
    Raises BusError with a remedy if name servers or brokers do not respond or reject the request.
    """

    kind: Literal["log"] = "log"
    #: The time for which a caller that polls several times a second may reuse the result of `ends`.
    ends_valid_seconds = 1.0

    def __init__(self, settings: ClientSettings, topics: Sequence[str]) -> None:
        self._servers = ",".join(settings.name_servers)
        self._topics = tuple(topics)
        self._client = Client(settings)
        self._publishing = MessagePublisher(self._client, self._servers)
        self._ranges = RangeReader(self._pull)
        self._following: PartitionFollower | None = None
        self._earliest: dict[Partition, int] = {}  # of the followed partitions
        self._partitions: frozenset[Partition] = frozenset()
        self._partitions_until = 0.0

    @property
    def uri(self) -> str:
        """Return `rocketmq://` and the name servers that the connection names."""
        return f"rocketmq://{self._servers}"

    def identities(self) -> Mapping[str, str]:
        """Return an empty mapping, because RocketMQ gives topics no identity."""
        return {}

    def partitions(self) -> Sequence[Partition]:
        """Return those partitions of the topics that can be read now.

        Partitions of a broker that did not respond to `ends` are left out for a while if another broker responded.
        """
        found: list[Partition] = []
        for topic in self._topics:
            with self._doing(f"cannot look up the topic {topic!r}"):
                found += [Partition(*partition) for partition in self._client.queues(topic)]
        found = [partition for partition in found if not self._client.is_away(partition.broker)] or found
        self._partitions, self._partitions_until = frozenset(found), time.monotonic() + _PARTITIONS_HOLD_SECONDS
        return sorted(found)

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if none is); while following, as of its start."""
        if (known := self._earliest.get(partition)) is not None:
            return known
        with self._doing(f"cannot read the first offset of {_name(partition)}"):
            return self._client.earliest(self._checked_queue(partition))

    def end(self, partition: Partition) -> int:
        """Return the offset up to which a partition can be read."""
        with self._doing(f"cannot read the end offset of {_name(partition)}"):
            return self._client.end(self._checked_queue(partition))

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition; the requests to a broker are sent together.

        A new partition is included after a few seconds; `partitions` includes it immediately. The end of a followed
        partition is the offset up to which it was fetched.
        """
        if self._following is not None:
            return self._following.ends()
        known = self._cached_partitions()
        with self._doing("cannot read the end offsets"):
            found = self._client.ends([TopicQueue(*partition) for partition in known])
        return {Partition(*partition): offset for partition, offset in found.items()}

    def follow(self, positions: Mapping[Partition, int]) -> None:
        """Start fetching from these offsets in the background; `ends` and `read` then use the fetched messages."""
        self._stop_following()
        earliest = {partition: self.earliest(partition) for partition in positions}
        begins = {partition: max(offset, earliest[partition]) for partition, offset in positions.items()}
        self._following, self._earliest = PartitionFollower(self._client, self._servers, begins), earliest

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message stored at or after the aware time `at` (the end if none is)."""
        since = max(0, -((_EPOCH - at) // _MILLISECOND))  # rounded up: brokers count milliseconds
        asked = self._checked_queue(partition)
        with self._doing(f"cannot look up offsets of {_name(partition)} by time"):
            end, first = self._client.end(asked), self._client.earliest(asked)
            found = max(first, self._client.offset_at(asked, since))
            # brokers of some versions return the last message before that time
            later = (each for part in self._client.read(asked, found, end) for each in part if each.stored_at >= since)
            return next((each.offset for each in later), end)

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, as blocks of `MESSAGES`.

        The call itself raises OffsetGapError if `end` is beyond the end of the partition.
        """
        if self._following is not None and self._following.holds(partition, max(start, self.earliest(partition)), end):
            fault_points.reach("bus.read")
            return self._following.blocks(partition, start, end)
        log_end = self.end(partition)
        if end > log_end:
            raise OffsetGapError(
                f"{self.uri}: offsets {start} to {end} of {_name(partition)} were requested, but the partition "
                f"ends at {log_end}: the topic was recreated, or its broker lost messages. "
                "Restore the topic, or give the rules a runner with a new name"
            )
        return self._read_range(partition, max(start, self.earliest(partition)), end)

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each.

        Brokers have acknowledged all records when this returns. Records with the same key go to one partition; records
        without a key are distributed round-robin. Raises BusError if some may not have been stored.
        """
        topic = self._topics[0] if topic is None else topic
        if topic not in self._topics:
            raise BusError(f"{self.uri}: topic {topic!r} is not open. Open topics: {', '.join(self._topics)}")
        return self._publishing.publish(topic, records)

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets that the brokers store for a consumer group, for the partitions of the topics."""
        with self._doing(f"cannot read the committed offsets of the group {group!r}"):
            asked = {
                partition: self._client.committed(group, TopicQueue(*partition))
                for partition in self._cached_partitions()
            }
        return {partition: offset for partition, offset in asked.items() if offset is not None}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group, without joining it; the last write wins."""
        asked = {self._checked_queue(partition): offset for partition, offset in offsets.items()}
        fault_points.reach("bus.commit")
        with self._doing(f"cannot commit for the group {group!r}"):
            for partition, offset in asked.items():
                self._client.commit(group, partition, offset)
        fault_points.reach("bus.commit.done")

    def close(self) -> None:
        """Close the connections to name servers and brokers."""
        self._stop_following()
        self._ranges.close()
        self._client.close()

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.close()
        self._following, self._earliest = None, {}

    def _read_range(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        fault_points.reach("bus.read")
        if start < end:
            with self._doing(f"cannot read {_name(partition)} from {start} to {end}"):
                yield from self._ranges.blocks(partition, start, end)

    def _pull(self, partition: Partition, start: int, end: int) -> Blocks:
        yield from blocks_of_bodies(self._client.read_bodies(TopicQueue(*partition), start, end))

    def _cached_partitions(self) -> Sequence[Partition]:
        return sorted(self._partitions) if time.monotonic() < self._partitions_until else self.partitions()

    def _checked_queue(self, partition: Partition) -> TopicQueue:
        if partition not in self._partitions and partition not in self.partitions():
            raise BusError(f"{self.uri}: the partition {_name(partition)} is not open")
        return TopicQueue(*partition)

    def _doing(self, action: str) -> AbstractContextManager[None]:
        return as_bus_errors(self._servers, action)


def _name(partition: Partition) -> str:
    return f"{partition.topic}/{partition.broker}/{partition.partition_id}"


Blocks = Generator[pa.RecordBatch, None, None]

#: The time for which a range whose reader stopped can be continued; brokers close a connection after two minutes of
#: silence.
_HOLD_SECONDS: Final = 30.0


@dataclass(frozen=True)
class _StoppedRange:
    """A range whose reader stopped inside a block or after it."""

    partition: Partition
    end: int
    blocks: Blocks
    last: pa.RecordBatch
    holds_until: float

    def is_continued_by(self, partition: Partition, start: int, end: int) -> bool:
        """Return whether a range is the rest of this range, from inside its last block or right after it."""
        return (
            (self.partition, self.end) == (partition, end)
            and self.last["offset"][0].as_py() <= start <= self.last["offset"][-1].as_py() + 1
            and time.monotonic() < self.holds_until
        )

    def rest_from(self, start: int) -> pa.RecordBatch:
        """Return the part of the last block that begins at an offset."""
        return self.last.slice(int(np.searchsorted(self.last["offset"].to_numpy(), start)))


class RangeReader:
    """Reads ranges, whose blocks `begin` pulls, and keeps the last unfinished range. Threads may share an instance."""

    def __init__(self, begin: Callable[[Partition, int, int], Blocks]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._stopped: _StoppedRange | None = None

    def blocks(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of a range; if it is the rest of the kept range, continue the pulls of that range."""
        stopped = self._swap_stopped(None)
        rest: pa.RecordBatch | None = None
        if stopped is not None and stopped.is_continued_by(partition, start, end):
            blocks, rest = stopped.blocks, stopped.rest_from(start)
        else:
            if stopped is not None:
                stopped.blocks.close()
            blocks = self._begin(partition, start, end)
        block = rest if rest is not None and rest.num_rows else next(blocks, None)
        while block is not None:
            try:
                yield block
            except GeneratorExit:
                self._keep(_StoppedRange(partition, end, blocks, block, time.monotonic() + _HOLD_SECONDS))
                raise
            block = next(blocks, None)

    def close(self) -> None:
        """Drop the pulled messages that were not read."""
        self._keep(None)

    def _keep(self, stopped: _StoppedRange | None) -> None:
        before = self._swap_stopped(stopped)
        if before is not None:
            before.blocks.close()

    def _swap_stopped(self, stopped: _StoppedRange | None) -> _StoppedRange | None:
        with self._lock:
            before, self._stopped = self._stopped, stopped
        return before
