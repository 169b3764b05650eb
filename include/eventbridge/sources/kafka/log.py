"""Implements a log on topics of a Kafka cluster: offsets, reading by range, publishing.

Aborted messages, transaction markers and compaction leave gaps, which are offsets without an event. A partition
ends at its last stable offset, so the content of a range never changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from eventbridge import fault_points
from eventbridge.clients.kafka.client import BrokerQueries, client_settings
from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.sources.kafka.fields import KafkaFields
from eventbridge.sources.kafka.publishing import IdempotentPublisher
from eventbridge.sources.kafka.reading import PartitionFollower, RangeConsumer
from eventbridge.sources.open import SourceSetup

#: The time for which the list of partitions is cached for `ends`.
_PARTITIONS_CACHE_SECONDS: Final = 5.0

#: The time for which the bounds of a partition are cached for `read`; the client reports messages that were dropped in
#: the meantime.
_BOUNDS_CACHE_SECONDS: Final = 1.0

#: The time for which a topic's max.message.bytes is cached.
_SIZES_CACHE_SECONDS: Final = 60.0
#: The maximum number of bytes that a batch of one record adds to body and key: 61, the lengths, EventBridge's header.
_RECORD_OVERHEAD: Final = 61 + 20 + 60

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class KafkaLog:
    """A log source and publisher for topics of one cluster; it never creates topics.

    `settings` are a client's settings, from `clients.kafka.client.client_settings`. It connects on first use.
    Threads may share an instance, but only one may read at a time; a forked process must open its own.
    Raises BusError with a remedy if the brokers do not respond or reject the request.
    """

    kind: Literal["log"] = "log"
    #: The time for which a caller that polls several times a second may reuse the result of `ends`.
    ends_valid_seconds = 1.0

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str], *, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._topics = tuple(topics)
        self._queries = BrokerQueries(settings)
        self._reader: RangeConsumer | None = None
        self._follower: PartitionFollower | None = None
        self._earliest: dict[Partition, int] = {}  # of the followed partitions
        self._publisher = IdempotentPublisher(settings, clock, self._min_record_bytes)
        self._partitions: frozenset[Partition] = frozenset()
        self._partitions_until = 0.0
        self._cached_bounds: dict[Partition, tuple[int, int, float]] = {}
        self._max_bytes: dict[str, tuple[int | None, float]] = {}

    @property
    def uri(self) -> str:
        """Return `kafka://` and the brokers that the connection names."""
        return f"kafka://{self._queries.servers}"

    def identities(self) -> Mapping[str, str]:
        """Return the ids of the cluster and the topic, by topic; a recreated topic has a new id."""
        asked = self._queries.responses(lambda client: {0: client.describe_cluster()}, "cannot read the cluster's id")
        cluster = asked[0].cluster_id
        return {name: f"{cluster}/{topic.topic_id}" for name, topic in self._describe_topics().items()}

    def partitions(self) -> Sequence[Partition]:
        """Return the current partitions of the topics."""
        found = [
            Partition(name, "", partition.id)
            for name, topic in self._describe_topics().items()
            for partition in topic.partitions
        ]
        self._partitions, self._partitions_until = frozenset(found), time.monotonic() + _PARTITIONS_CACHE_SECONDS
        return sorted(found)

    def earliest(self, partition: Partition) -> int:
        """Return the first offset that exists (the end offset if none does); while following, as of its start."""
        known = self._earliest.get(partition)
        return known if known is not None else self._offsets([partition], OffsetSpec.earliest())[partition]

    def end(self, partition: Partition) -> int:
        """Return the offset up to which a partition can be read."""
        return self._offsets([partition], OffsetSpec.latest())[partition]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition, with one request to each leader.

        A new partition is included after a few seconds; `partitions` includes it immediately. The end of a followed
        partition is the offset up to which it was fetched.
        """
        if self._follower is not None:
            return self._follower.ends()
        if time.monotonic() > self._partitions_until:
            self.partitions()
        return self._offsets(sorted(self._partitions), OffsetSpec.latest())

    def follow(self, positions: Mapping[Partition, int]) -> None:
        """Start fetching from these offsets in the background; `ends` and `read` then use the fetched messages."""
        self._stop_following()
        earliest = self._offsets(sorted(positions), OffsetSpec.earliest())
        begins = {partition: max(offset, earliest[partition]) for partition, offset in positions.items()}
        self._follower, self._earliest = PartitionFollower(self._settings, begins), earliest

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none was)."""
        since = -((_EPOCH - at) // _MILLISECOND)  # rounded up: brokers count milliseconds
        found = self._offsets([partition], OffsetSpec.for_timestamp(max(0, since)))[partition]
        return found if found >= 0 else self.end(partition)

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message that the topic still has with start <= offset < end, in order, as blocks of `MESSAGES`.

        The call itself raises OffsetGapError if `end` is beyond the end of the partition.
        """
        if self._follower is not None and self._follower.holds(partition, max(start, self.earliest(partition)), end):
            fault_points.reach("bus.read")
            return self._follower.blocks(partition, start, end)
        begin, log_end = self._bounds(partition, end)
        if end > log_end:
            raise OffsetGapError(
                f"{self.uri}: offsets {start} to {end} of {partition.topic}/{partition.partition_id} were requested, "
                f"but the partition ends at {log_end}: the topic was recreated, or lost messages with a failed leader. "
                "Restore the topic, or give the rules a runner with a new name"
            )
        if self._reader is None:
            self._reader = RangeConsumer(self._settings)
        return self._reader.blocks(partition, max(start, begin), end)

    def _bounds(self, partition: Partition, end: int) -> tuple[int, int]:
        """Return the bounds of a partition, cached for a second if they include `end`.

        A range is read file by file, and a request per file would take longer than reading a small file.
        """
        begin, log_end, until = self._cached_bounds.get(partition, (0, 0, 0.0))
        if end > log_end or time.monotonic() > until:
            begin, log_end = self.earliest(partition), self.end(partition)
            self._cached_bounds[partition] = begin, log_end, time.monotonic() + _BOUNDS_CACHE_SECONDS
        return begin, log_end

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each.

        All in-sync replicas have the records when this returns. A record's key decides its partition in the same way as
        in librdkafka's default partitioner; records without a key are distributed round-robin. Raises BusError if some
        may not have been stored.
        """
        topic = self._topics[0] if topic is None else topic
        if topic not in self._topics:
            raise BusError(f"{self.uri}: topic {topic!r} is not open. Open topics: {', '.join(self._topics)}")
        return self._publisher.publish(
            [partition for partition in self._cached_partitions() if partition.topic == topic], records
        )

    def max_bytes(self, topic: str) -> int | None:
        """Return the maximum size of a record's body and key, in bytes, from the topic's max.message.bytes.

        It is cached for a minute. Returns None if the size is unknown, because the login may not describe the topic's
        configuration or no broker responds.
        """
        known = self._max_bytes.get(topic)
        if known is None or time.monotonic() > known[1]:
            known = self._max_bytes[topic] = self._read_record_bytes(topic), time.monotonic() + _SIZES_CACHE_SECONDS
        return known[0]

    def _min_record_bytes(self) -> int | None:
        known = [most for most in map(self.max_bytes, self._topics) if most is not None]
        return min(known, default=None)

    def _read_record_bytes(self, topic: str) -> int | None:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            doing = f"cannot read max.message.bytes of {topic!r}"
            responses = self._queries.responses(lambda client: client.describe_configs([asked]), doing)
        except BusError:
            return None
        (found,) = responses.values()
        return max(0, int(found["max.message.bytes"].value) - _RECORD_OVERHEAD)

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets that the cluster stores for a consumer group, for the partitions of the topics."""
        parts = [TopicPartition(partition.topic, partition.partition_id) for partition in self._cached_partitions()]
        group_partitions = ConsumerGroupTopicPartitions(group, parts)
        doing = f"cannot read the committed offsets of the group {group!r}"
        asked = self._queries.responses(lambda client: client.list_consumer_group_offsets([group_partitions]), doing)
        (response,) = asked.values()
        self._raise_for_failed(response.topic_partitions, doing)
        return {
            Partition(each.topic, "", each.partition): each.offset
            for each in response.topic_partitions
            if each.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets (the next to read) for a group without joining it; the last write wins."""
        for partition in offsets:
            self._check(partition)
        fault_points.reach("bus.commit")
        if offsets:
            parts = [
                TopicPartition(partition.topic, partition.partition_id, offset) for partition, offset in offsets.items()
            ]
            group_partitions, doing = (
                ConsumerGroupTopicPartitions(group, parts),
                f"cannot commit for the group {group!r}",
            )
            asked = self._queries.responses(
                lambda client: client.alter_consumer_group_offsets([group_partitions]), doing
            )
            (response,) = asked.values()
            self._raise_for_failed(response.topic_partitions, doing)
        fault_points.reach("bus.commit.done")

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._publisher.close()
        self._stop_following()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _stop_following(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._follower, self._earliest = None, {}

    def _describe_topics(self) -> dict[str, Any]:
        named = TopicCollection(list(self._topics))
        doing = f"cannot describe the topics {', '.join(map(repr, self._topics))}"
        return self._queries.responses(lambda client: client.describe_topics(named), doing)

    def _cached_partitions(self) -> Sequence[Partition]:
        return sorted(self._partitions) if time.monotonic() < self._partitions_until else self.partitions()

    def _check(self, partition: Partition) -> None:
        if partition not in self._partitions and partition not in self.partitions():
            raise BusError(f"{self.uri}: the partition {partition.topic}/{partition.partition_id} is not open")

    def _offsets(self, partitions: Sequence[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        for partition in partitions:
            self._check(partition)
        asked = {TopicPartition(partition.topic, partition.partition_id): spec for partition in partitions}
        level = IsolationLevel.READ_COMMITTED
        responses = self._queries.responses(
            lambda client: client.list_offsets(asked, isolation_level=level),
            "cannot read offsets",
            partitions_exist=True,
        )
        return {Partition(part.topic, "", part.partition): int(info.offset) for part, info in responses.items()}

    def _raise_for_failed(self, parts: Sequence[TopicPartition], doing: str) -> None:
        for part in parts:
            if part.error is not None:
                raise self._queries.failure(f"{doing} in {part.topic}/{part.partition}", part.error)


def open_kafka(opening: SourceSetup[KafkaFields]) -> KafkaLog:
    """Open the source's topics, without sending a request to the brokers. Raises ConnectionUnusable."""
    source = opening.source
    settings = client_settings(opening.connections(source.connection))
    return KafkaLog(settings, source.topics, clock=opening.clock)
