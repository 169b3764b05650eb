"""Partitions of a bus, positions and spans in them, and the offsets of consumer groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

_TEXT: Final = re.compile(r"([0-9]+)@(-?[0-9]+)")


class Partition(NamedTuple):
    """One partition of a topic of a bus; `broker` is empty if the bus has no brokers."""

    topic: str
    broker: str
    partition_id: int


class Position(NamedTuple):
    """The position of a delivery's event on its bus; bus order is the order of offsets within a partition."""

    partition: Partition
    offset: int


class Span(NamedTuple):
    """The first and the last offset of a pending row in a partition."""

    partition: Partition
    first: int
    last: int


class LastMessage(NamedTuple):
    """The offset of a message, and when the bus accepted it, in microseconds since 1970; a recreated log has another
    message at the offset."""

    offset: int
    time: int

    @property
    def text(self) -> str:
        """Return it as the text that the ledger stores."""
        return f"{self.offset}@{self.time}"


def last_message_of(text: str) -> LastMessage | None:
    """Return the last message of a text of the ledger; None for another text, such as the identity of a log."""
    found = _TEXT.fullmatch(text)
    return None if found is None else LastMessage(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class ConsumerOffset:
    """The committed offset of a consumer group (= runner) in one partition: the smallest that is not settled yet.

    It refers to the log of `bus_identity`; empty: registered by a version that did not record it, or the bus has none.
    `message_id` is the last message taken, as the text of a `LastMessage`; empty: none yet, or unknown.
    """

    group: str
    bus: str
    partition: Partition
    offset: int
    message_id: str
    changed_at: datetime
    bus_identity: str = ""


class Move(NamedTuple):
    """Offsets of a partition that a committed batch moved; `is_full`: the batch took all that it was allowed to."""

    partition: Partition
    events: int
    planned_at: datetime
    committed_at: datetime
    is_full: bool


class FreshEvent(NamedTuple):
    """A valid event as a bus gave it; `published_at` in microseconds since 1970."""

    partition: Partition
    offset: int
    published_at: int
    event_id: str
    source: str
    body: bytes
