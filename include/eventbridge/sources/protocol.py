"""What an event bus can offer, apart: a log read by range, a queue that is acknowledged, publishing, trimming.

An adapter meets those that its bus can keep. Each is proved by its contract suite in `eventbridge.testing`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from eventbridge.model.partition import Partition


class LogSource(Protocol):
    """A bus whose messages keep their offsets and can be read again; raises BusError where it cannot respond."""

    kind: Literal["log"]

    @property
    def uri(self) -> str:
        """Return where the log lies, for messages to people."""

    def identities(self) -> Mapping[str, str]:
        """Return the id that the log of each topic was given when it was made; one made again has another.

        Offsets mean nothing on a log of another identity. A topic without one has none to compare.
        """

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that exist now."""

    def earliest(self, partition: Partition) -> int:
        """Return the first offset still held (the end offset if the partition is empty)."""

    def end(self, partition: Partition) -> int:
        """Return the offset the next message will get: one more than the last."""

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition at once, cheaply enough to be asked several times a second."""

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, as blocks of `messages.MESSAGES`.

        A block has at least one message and at most some MiB: its reader holds one in memory, and may stop after any.
        An offset that is in no block is a gap: the log no longer holds it.
        Raises BusError rather than leave out a message it holds, and OffsetGapError at the call
        if `end` lies beyond the end of the log: then it is not the log that the range was planned on.
        """

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return the offsets that the bus itself has on record for a consumer group (empty: none)."""

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Record offsets (next to read) for a group; repeating it is harmless."""

    def close(self) -> None:
        """Let go of connections and files."""


class QueueSource(Protocol):
    """The queue of one topic, which hands out each message until it is acknowledged; raises BusError.

    Threads may share an instance.
    """

    kind: Literal["queue"]

    @property
    def uri(self) -> str:
        """Return where the partition lies, for messages to people."""

    @property
    def visibility_timeout(self) -> float:
        """Return for how long a message that was received is handed out to nobody else."""

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` messages as one block of `messages.RECEIVED`, fewer or none if there are no more.

        They are invisible to others until they are acknowledged or their visibility timeout is over.
        """

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Extend the visibility timeout of messages, from now on, and return what acknowledges each of them then.

        Receipts that ran out are ignored, and returned as they are.
        """

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages from the partition for good; receipts that ran out are ignored."""

    def waiting(self) -> int:
        """Return about how many messages wait, cheaply enough to be asked every second.

        Those that are just with somebody may be counted.
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class FollowableLog(Protocol):
    """A log that fetches ahead for one who stays, so that looking at it often asks nobody."""

    def follow(self, positions: Mapping[Partition, int]) -> None:
        """Fetch what comes from these offsets on; called again, from these.

        From then on `ends` says up to where was fetched, `earliest` what was on hold when it began, and `read` gives
        what was fetched where it can. One thread at a time uses a log that follows.
        """


class Announcements(Protocol):
    """A descriptor that is readable once something may have been published since `take_signal` was called last."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def take_signal(self) -> bool:
        """Return whether something was told, and forget it: who looks at the log after that misses nothing."""


@runtime_checkable
class AnnouncingLog(Protocol):
    """A log that can tell when something was published, so that it need not be looked at all the time."""

    def announcements(self) -> Announcements | None:
        """Return what tells, as long as the log is open; None: it is to be looked at."""


@runtime_checkable
class PagedLog(Protocol):
    """A log that keeps no keys and no headers, and gives few messages for less than a block of columns takes."""

    def pages(
        self, partition: Partition, start: int, end: int
    ) -> Generator[Sequence[tuple[int, int, bytes]], None, None]:
        """Yield what `read` does, a page at a time: offset, when it was published in microseconds since 1970, body.

        `end` is one that was told: that the log reaches so far is not looked at.
        """


@runtime_checkable
class InboxLog(Protocol):
    """A log that is filled by whoever reads it: what queues handed out."""

    def take_in(self, most: int) -> int:
        """Take up to `most` messages over from the queues, acknowledge them, and return how many came."""

    def lost_files(self, before: datetime) -> Sequence[str]:
        """Return the files in the store that whoever took messages over left before a time, and that nothing names."""


@runtime_checkable
class Publisher(Protocol):
    """A bus that events can be published to."""

    def publish(
        self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None
    ) -> list[tuple[Partition, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies.

        All of them are durable when this returns. Records of one key go to one partition, in order.
        Raises BusError if they may not all be there.
        """

    def close(self) -> None:
        """Let go of connections and files."""


@runtime_checkable
class SizeLimitedPublisher(Protocol):
    """A publisher whose topics take no records above a size, which fail those that are published with them."""

    def most_bytes(self, topic: str) -> int | None:
        """Return how many bytes body and key of a record may have together, as the topic is now; None: not known."""


@runtime_checkable
class TrimmableLog(Protocol):
    """A log that drops old messages when it is told to; others do so by a retention of their own."""

    def trim(self, before: datetime, keep: Mapping[Partition, int] | None = None) -> int:
        """Drop messages published before the aware time `before`; return how many.

        Of a partition in `keep` none from that offset on. Offsets that a group has not read become gaps.
        """


@runtime_checkable
class DiskBackedBus(Protocol):
    """A bus whose events lie on a disk of this host, which may become full."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written there."""
