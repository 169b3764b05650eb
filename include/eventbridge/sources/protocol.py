"""What an event bus must offer to be a source: a log that is read by range, or a queue that is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from eventbridge.queue import Queue


class Message(NamedTuple):
    """One message of a log: where it lies, when the bus took it (aware), and its bytes."""

    queue: Queue
    offset: int
    message_id: str
    published_at: datetime
    body: bytes


class LogSource(Protocol):
    """A bus whose messages keep their offsets and can be read again; raises BusError where it cannot answer."""

    kind: Literal["log"]

    @property
    def uri(self) -> str:
        """Return where the log lies, for messages to people."""

    def identity(self) -> str:
        """Return the id that the log was given when it was made, for ever the same; one made anew has another.

        Offsets mean nothing on a log of another identity. Empty: this kind of log has none to compare.
        """

    def queues(self) -> Sequence[Queue]:
        """Return the queues that exist now."""

    def earliest(self, queue: Queue) -> int:
        """Return the first offset still held (the end offset if the queue is empty)."""

    def end(self, queue: Queue) -> int:
        """Return the offset the next message will get: one more than the last."""

    def ends(self) -> Mapping[Queue, int]:
        """Return the end offset of every queue at once, cheaply enough to be asked several times a second."""

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message published at or after the aware time `at` (the end if none is)."""

    def read(self, queue: Queue, start: int, end: int) -> Iterator[Message]:
        """Yield every message still held with start <= offset < end, in order.

        An offset that is not yielded is a gap: the log no longer holds it.
        Raises BusError rather than leave out a message it holds, and OffsetGapError at the call
        if `end` lies beyond the end of the log: then it is not the log that the range was planned on.
        """

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets that the bus itself has on record for a consumer group (empty: none)."""

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group; repeating it is harmless."""

    def close(self) -> None:
        """Let go of connections and files."""


class Received(NamedTuple):
    """One message taken from a queue, invisible to others until acknowledged or until its time runs out."""

    receipt: str
    message: Message


class QueueSource(Protocol):
    """A bus that hands out each message until it is acknowledged; raises BusError where it cannot answer."""

    kind: Literal["queue"]

    def receive(self, at_most: int) -> Sequence[Received]:
        """Return up to `at_most` messages, fewer or none if the queue has no more."""

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages from the queue for good; receipts that ran out are ignored."""

    def close(self) -> None:
        """Let go of connections."""
