"""Defines the protocol of an embedded bus's tables: partitions, messages and offsets, in a file or a database."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

#: A page of a read ends after this many messages or this many bytes of bodies, whichever comes first.
PAGE_MESSAGES = 1_000
PAGE_BYTES = 4 * 1024 * 1024


class Message(NamedTuple):
    """A message and the number of its partition; `published_at` is in microseconds since 1970."""

    partition: int
    offset: int
    published_at: int
    body: bytes


class End(NamedTuple):
    """The end of a partition: its next offset, and the time of its last message."""

    offset: int
    published_at: int


class Writer(Protocol):
    """One transaction; rows that it locked do not change until it ends."""

    def lock_bus(self) -> None:
        """Keep other transactions from creating partitions."""

    def make_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Create partitions, each by its topic and id."""

    def lock_ends(self, numbers: Sequence[int]) -> Mapping[int, End]:
        """Keep other transactions from publishing to partitions, and return the ends of the partitions."""

    def append(self, messages: Iterator[Message]) -> None:
        """Add messages."""

    def move_ends(self, ends: Mapping[int, End]) -> None:
        """Set the ends of partitions."""

    def commit_offsets(self, group: str, offsets: Mapping[int, int], at: int) -> None:
        """Record offsets of a consumer group."""

    def lock_partition(self, number: int) -> None:
        """Keep other transactions from trimming a partition."""

    def drop(self, number: int, first: int, end: int) -> int:
        """Drop the messages of a partition with first <= offset < end; return their number."""


class Tables(Protocol):
    """The tables of one bus; threads may share them. Raises BusError with a remedy if they cannot be used.

    `name` and `storage` (a file, a database) are for messages to users. Partitions are numbered.
    """

    name: str
    storage: str
    identity: str

    @property
    def uri(self) -> str:
        """Return the URI of the tables, without a secret."""

    def close(self) -> None:
        """Close the tables."""

    def snapshot(self) -> AbstractContextManager[object]:
        """Let several queries read one consistent state of the bus."""

    def writing(self) -> AbstractContextManager[Writer]:
        """Run the block as one transaction; it is durable when the block ends, rolled back if it raises."""

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return the topic, id and number of each partition."""

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return the number and end offset of each partition, with one short query."""

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset that a partition still holds, and its end offset."""

    def published_at(self, number: int, offset: int) -> int:
        """Return when a stored message was published, in microseconds since 1970."""

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return the offset, time and body of each message on the first page of start <= offset < end."""

    def committed(self, group: str) -> Iterable[tuple[int, int]]:
        """Return the number and committed offset of each partition of a consumer group."""


# A message's position combines its partition's number and its offset in one 63-bit integer: 2^40 offsets per partition.
_OFFSET_BITS = 40

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def partition_of_key(key: str, partitions: int) -> int:
    """Return the index of the partition for a key; the same in every process and version."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % partitions


def position(number: int, offset: int) -> int:
    """Return the row id of a message from the number of its partition and its offset."""
    return number << _OFFSET_BITS | offset


def offset_of(position: int) -> int:
    """Return the offset of a message in its partition from its row id."""
    return position & ((1 << _OFFSET_BITS) - 1)


def microseconds(at: datetime) -> int:
    """Return an aware time as whole microseconds since 1970 (UTC)."""
    return (at - _EPOCH) // _MICROSECOND
