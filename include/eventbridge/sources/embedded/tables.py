"""What an embedded bus asks of the tables that hold its partitions, messages and offsets, wherever these lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

#: A page of a read ends at whichever comes first: this many messages, or this many bytes of bodies.
PAGE_MESSAGES = 1_000
PAGE_BYTES = 4 * 1024 * 1024


class Message(NamedTuple):
    """A message in its partition, which has a number; `published_at` is in microseconds since 1970."""

    partition: int
    offset: int
    published_at: int
    body: bytes


class End(NamedTuple):
    """Where a partition ends: the next offset, and when its last message was published."""

    offset: int
    published_at: int


class Writer(Protocol):
    """One transaction. What it has locked stays as it is until that ends."""

    def lock_bus(self) -> None:
        """Keep others from making partitions."""

    def make_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Make partitions, each by its topic and its id."""

    def lock_ends(self, numbers: Sequence[int]) -> Mapping[int, End]:
        """Keep others from publishing to partitions, and return where these end."""

    def append(self, messages: Iterator[Message]) -> None:
        """Add messages."""

    def move_ends(self, ends: Mapping[int, End]) -> None:
        """Have partitions end elsewhere."""

    def commit_offsets(self, group: str, offsets: Mapping[int, int], at: int) -> None:
        """Record offsets of a consumer group."""

    def lock_partition(self, number: int) -> None:
        """Keep others from trimming a partition."""

    def drop(self, number: int, first: int, end: int) -> int:
        """Drop the messages of a partition from `first` to `end`, which is excluded; return how many there were."""


class Tables(Protocol):
    """The tables of one bus; threads may share them. Raises BusError with a remedy where they cannot be used.

    `name` is theirs in messages to people, `place` what they lie in: a file, a database. Partitions have numbers.
    """

    name: str
    place: str
    identity: str

    @property
    def uri(self) -> str:
        """Return where they lie, without a secret."""

    def close(self) -> None:
        """Let go of them."""

    def snapshot(self) -> AbstractContextManager[object]:
        """Let several questions see the bus as it is at one moment."""

    def writing(self) -> AbstractContextManager[Writer]:
        """Make what the writer is told one transaction, durable when the block has ended, undone if it raises."""

    def partitions(self) -> Iterable[tuple[str, int, int]]:
        """Return topic, id and number of each partition."""

    def ends(self) -> Iterable[tuple[int, int]]:
        """Return number and end offset of each partition, by one short query."""

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first offset of a partition that is held, and its end."""

    def published_at(self, number: int, offset: int) -> int:
        """Return when a message that is held was published."""

    def page(self, number: int, start: int, end: int) -> Sequence[tuple[int, int, bytes]]:
        """Return offset, time and body of the first messages with start <= offset < end, no more than a page."""

    def committed(self, group: str) -> Iterable[tuple[int, int]]:
        """Return number and offset of each partition that a consumer group has an offset of."""
