"""Protocols of an event bus, one per capability: log, queue with acknowledgements, publishing, trimming.

An adapter implements the protocols that its bus supports. Each protocol has a contract suite in tests/contracts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from eventbridge.model.partition import Partition


class LogSource(Protocol):
    """A bus whose messages keep their offsets and can be read again. Raises BusError if it does not respond."""

    kind: Literal["log"]

    @property
    def uri(self) -> str:
        """Return the address of the log, for messages to users."""

    def identities(self) -> Mapping[str, str]:
        """Return the identity of each topic's log, by topic; a log that is created again gets a different one.

        An offset is valid only while its log has the identity with which the offset was read. A topic may have none.
        """

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that exist now."""

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if the partition is empty)."""

    def end(self, partition: Partition) -> int:
        """Return the offset that the next message will get: one more than the last."""

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition, cheaply enough to be called several times a second."""

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, as blocks of `messages.MESSAGES`.

        A block has at least one message and at most a few MiB, because its reader keeps one in memory. The reader may
        stop after any block. An offset that is in no block is a gap, which the log no longer holds. Raises BusError
        rather than skip an existing message. The call itself raises OffsetGapError if `end` is beyond the end of the
        log, because the range was planned on another log.
        """

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets that the bus itself stores for a consumer group; empty if it stores none."""

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group; repeating it is harmless."""

    def close(self) -> None:
        """Close connections and files."""


class QueueSource(Protocol):
    """The queue of one topic, which redelivers each message until it is acknowledged. Raises BusError on failure.

    Threads may share an instance.
    """

    kind: Literal["queue"]

    @property
    def uri(self) -> str:
        """Return the address of the queue, for messages to users."""

    @property
    def visibility_timeout(self) -> float:
        """Return the number of seconds for which a received message is invisible to other receivers."""

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` messages as one block of `messages.RECEIVED`; fewer or none if no more are waiting.

        They are invisible to other receivers until they are acknowledged or their visibility timeout expires.
        """

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, and return their new receipts.

        Expired receipts are ignored, and returned unchanged.
        """

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages from the queue; expired receipts are ignored."""

    def waiting(self) -> int:
        """Return the approximate number of waiting messages; cheap enough for a call every second.

        Messages in flight may be counted.
        """

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class FollowableLog(Protocol):
    """A log that fetches ahead for a long-lived reader, so that polling it causes no requests."""

    def follow(self, positions: Mapping[Partition, int]) -> None:
        """Fetch new messages, beginning at these offsets; another call replaces the offsets.

        From then on, `ends` returns the ends of the fetched ranges, `earliest` returns the values from the time of this
        call, and `read` returns fetched messages if it can. Only one thread at a time may then use the log.
        """


class Announcements(Protocol):
    """A file descriptor that becomes readable once something may have been published since the last `take_signal`."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def take_signal(self) -> bool:
        """Return whether a signal was set, and clear it; a caller that polls the log afterwards misses no message."""


@runtime_checkable
class AnnouncingLog(Protocol):
    """A log that signals new messages, so that it need not be polled."""

    def announcements(self) -> Announcements | None:
        """Return the signal, valid while the log is open; None if the log must be polled."""


@runtime_checkable
class PagedLog(Protocol):
    """A log without keys and headers that returns a few messages more cheaply than as a block of columns."""

    def pages(
        self, partition: Partition, start: int, end: int
    ) -> Generator[Sequence[tuple[int, int, bytes]], None, None]:
        """Yield the messages that `read` would, a page at a time: offset, time of publishing, body.

        The time is in microseconds since 1970. `end` must come from `ends`, because it is not checked against the log.
        """


@runtime_checkable
class InboxLog(Protocol):
    """A log that its reader fills with messages received from queues."""

    def take_in(self, limit: int) -> int:
        """Receive up to `limit` messages from the queues, store and acknowledge them, and return their number."""

    def lost_files(self, before: datetime) -> Sequence[str]:
        """Return files that `take_in` wrote to the store before the given time and that no ledger row names."""


@runtime_checkable
class Publisher(Protocol):
    """A bus to which events can be published."""

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic, by default the first, and return the position of each.

        All of them are durable when this returns. Records with the same key go to one partition, in order.
        Raises BusError if some may not have been stored.
        """

    def close(self) -> None:
        """Close connections and files."""


@runtime_checkable
class SizeLimitedPublisher(Protocol):
    """A publisher with a maximum record size; a larger record fails the whole call."""

    def max_bytes(self, topic: str) -> int | None:
        """Return the current maximum size of body and key together, in bytes; None if unknown."""


@runtime_checkable
class TrimmableLog(Protocol):
    """A log that drops old messages on request; other logs have their own retention."""

    def trim(self, before: datetime, keep: Mapping[Partition, int] | None = None) -> int:
        """Drop messages published before the aware time `before`; return how many.

        `keep` has, for some partitions, the offset from which messages are kept in any case. Dropped offsets that a
        group has not read become gaps.
        """


@runtime_checkable
class ErasableLog(Protocol):
    """A log that replaces the bodies of stored messages on request."""

    def erase(self, offsets: Mapping[Partition, Sequence[int]], body: bytes) -> None:
        """Replace the bodies of messages, of which no byte is left in the log when this returns."""


@runtime_checkable
class DiskBackedBus(Protocol):
    """A bus on a disk of this host. The disk may become full."""

    def free_bytes(self) -> int:
        """Return the free bytes of that disk."""
