"""Defines the partitions of a bus, positions and spans in them, and the offsets of consumer groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

_TEXT: Final = re.compile(r"([0-9]+)@(-?[0-9]+)")


class Partition(NamedTuple):
    """One partition of a bus's topic; `broker` is empty if the bus has no brokers."""

    topic: str
    broker: str
    partition_id: int


class Position(NamedTuple):
    """The position of a delivery's event on its bus; bus order is the order of offsets within a partition."""

    partition: Partition
    offset: int


class Span(NamedTuple):
    """The first and the last offset that the events of a pending row or deferred match have in a partition."""

    partition: Partition
    first: int
    last: int


class LastMessage(NamedTuple):
    """The offset of a message, and when the bus accepted it, in microseconds since 1970. The time shows whether the log
    was recreated, because a recreated log has a different message at that offset.
    """

    offset: int
    time: int

    @property
    def text(self) -> str:
        """The message as the string that the ledger stores."""
        return f"{self.offset}@{self.time}"


def last_message_of(text: str) -> LastMessage | None:
    """Return the message that a string of the ledger describes; None for any other string, such as a log's identity."""
    found = _TEXT.fullmatch(text)
    return None if found is None else LastMessage(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class ConsumerOffset:
    """The committed offset of a consumer group (a runner) in one partition: the smallest offset that is not settled
    yet.

    It refers to the log with `bus_identity`, which is empty if the bus has none, or if the software version that
    registered the offset did not record it. `message_id` is the last message taken, as `LastMessage.text`; it is empty
    if no message was taken or the message is unknown.
    """

    group: str
    bus: str
    partition: Partition
    offset: int
    message_id: str
    changed_at: datetime
    bus_identity: str = ""


@dataclass(frozen=True)
class WatcherPosition:
    """The position of an asset's watcher on a bus: the next offset of each partition, in the logs of `identities`.

    The watcher numbers its asset events. Airflow has recorded those up to `sequence`, and `offsets` is the position
    after them. The watcher sent those up to `claimed` to Airflow, the last ones at `claimed_at`; Airflow may have
    recorded them.
    """

    asset: str
    bus: str
    name: str
    offsets: Mapping[Partition, int]
    identities: Mapping[str, str] = field(default_factory=dict)
    sequence: int = 0
    claimed: int = 0
    claimed_at: datetime | None = None


class Move(NamedTuple):
    """A committed batch's progress in a partition; `is_full` is True if the bus had more events than the batch was
    allowed to take."""

    partition: Partition
    events: int
    planned_at: datetime
    committed_at: datetime
    is_full: bool


class FreshEvent(NamedTuple):
    """A valid event as read from its bus; `published_at` is in microseconds since 1970."""

    partition: Partition
    offset: int
    published_at: int
    event_id: str
    source: str
    body: bytes
