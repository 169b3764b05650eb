"""Topics of a RocketMQ cluster as a log: what lies where, who has come how far, and what is read and published.

A message's time is when its broker stored it. Topics have no identity: one that is made again is known by its messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import pyarrow as pa

from eventbridge import fault_points
from eventbridge.errors import BusError, OffsetGapError
from eventbridge.model.queue import Queue
from eventbridge.rocketmq.remoting.client import Client
from eventbridge.rocketmq.remoting.queues import TopicQueue
from eventbridge.rocketmq.remoting.settings import ClientSettings
from eventbridge.rocketmq.told import as_bus_errors
from eventbridge.sources.rocketmq.bodies import blocks_of_bodies
from eventbridge.sources.rocketmq.following import Following
from eventbridge.sources.rocketmq.publishing import Publishing
from eventbridge.sources.rocketmq.ranges import Blocks, Ranges

#: How long what is known of the topics' queues holds where only their ends are asked for.
_QUEUES_HOLD_SECONDS: Final = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class RocketmqLog:
    """A log source, and a publisher, of some topics of a cluster; it makes none.

    Nothing is asked before it is needed. Threads may share an instance; a process forked from one must open its own.
    Raises BusError with a remedy where name servers or brokers do not answer, or refuse.
    """

    kind: Literal["log"] = "log"
    #: How long a caller that looks several times a second may take the answer of `ends` for today's.
    ends_hold_seconds = 1.0

    def __init__(self, settings: ClientSettings, topics: Sequence[str]) -> None:
        self._servers = ",".join(settings.name_servers)
        self._topics = tuple(topics)
        self._client = Client(settings)
        self._publishing = Publishing(self._client, self._servers)
        self._ranges = Ranges(self._pulled)
        self._following: Following | None = None
        self._earliest: dict[Queue, int] = {}  # of what it follows
        self._queues: frozenset[Queue] = frozenset()
        self._queues_until = 0.0

    @property
    def uri(self) -> str:
        """Return `rocketmq://` and the name servers that the connection names."""
        return f"rocketmq://{self._servers}"

    def identities(self) -> Mapping[str, str]:
        """Return nothing: RocketMQ gives topics no identity."""
        return {}

    def queues(self) -> Sequence[Queue]:
        """Return the queues of the topics that can be read, as they are now.

        Those of a broker that did not answer `ends` are left out for a while, if another one answered.
        """
        found: list[Queue] = []
        for topic in self._topics:
            with self._doing(f"to ask about the topic {topic!r}"):
                found += [Queue(*queue) for queue in self._client.queues(topic)]
        found = [queue for queue in found if not self._client.is_away(queue.broker)] or found
        self._queues, self._queues_until = frozenset(found), time.monotonic() + _QUEUES_HOLD_SECONDS
        return sorted(found)

    def earliest(self, queue: Queue) -> int:
        """Return the first offset still held (the end offset if the queue is empty), when it began to follow it."""
        if (known := self._earliest.get(queue)) is not None:
            return known
        with self._doing(f"to ask where {_name(queue)} begins"):
            return self._client.earliest(self._checked(queue))

    def end(self, queue: Queue) -> int:
        """Return the offset up to which a queue can be read."""
        with self._doing(f"to ask where {_name(queue)} ends"):
            return self._client.end(self._checked(queue))

    def ends(self) -> Mapping[Queue, int]:
        """Return the end offset of every queue; the questions to each broker go out together.

        A queue that appears is among them after a few seconds; `queues` knows it at once. Of what it follows up to
        where that was fetched.
        """
        if self._following is not None:
            return self._following.ends()
        known = self._known()
        with self._doing("to ask where queues end"):
            found = self._client.ends([TopicQueue(*queue) for queue in known])
        return {Queue(*queue): offset for queue, offset in found.items()}

    def follow(self, positions: Mapping[Queue, int]) -> None:
        """Fetch from these offsets on, beside: `ends` and `read` then tell and give what was fetched."""
        self._unfollow()
        earliest = {queue: self.earliest(queue) for queue in positions}
        begins = {queue: max(offset, earliest[queue]) for queue, offset in positions.items()}
        self._following, self._earliest = Following(self._client, self._servers, begins), earliest

    def offset_at(self, queue: Queue, at: datetime) -> int:
        """Return the offset of the first message stored at or after the aware time `at` (the end if none is)."""
        since = max(0, -((_EPOCH - at) // _MILLISECOND))  # the next whole one: brokers know no shorter times
        asked = self._checked(queue)
        with self._doing(f"to ask for offsets of {_name(queue)} by time"):
            end, first = self._client.end(asked), self._client.earliest(asked)
            found = max(first, self._client.offset_at(asked, since))
            # brokers of some versions answer with the last message before that time
            later = (each for part in self._client.read(asked, found, end) for each in part if each.stored_at >= since)
            return next((each.offset for each in later), end)

    def read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield every message still held with start <= offset < end, in order, as blocks of `MESSAGES`.

        Raises OffsetGapError at the call if `end` lies beyond the end of the queue.
        """
        if self._following is not None and self._following.holds(queue, max(start, self.earliest(queue)), end):
            fault_points.reach("bus.read")
            return self._following.blocks(queue, start, end)
        log_end = self.end(queue)
        if end > log_end:
            raise OffsetGapError(
                f"{self.uri}: offsets {start} to {end} of {_name(queue)} are wanted, and it ends at {log_end}: the "
                "topic was made again, or its broker lost messages. "
                "Let the topic have back what it had, or give the rules a runner of a new name"
            )
        return self._read(queue, max(start, self.earliest(queue)), end)

    def publish(self, records: Sequence[tuple[bytes, str | None]], topic: str | None = None) -> list[tuple[Queue, int]]:
        """Append records of (body, key) to a topic (the first one if None) and return where each of them lies.

        Brokers have acknowledged all when this returns. A key goes to one queue; records without one take turns.
        Raises BusError if some may not be there.
        """
        topic = self._topics[0] if topic is None else topic
        if topic not in self._topics:
            raise BusError(f"{self.uri}: topic {topic!r} is not open; open are {', '.join(self._topics)}")
        return self._publishing.publish(topic, records)

    def committed(self, group: str) -> Mapping[Queue, int]:
        """Return the offsets that the brokers have on record for a consumer group, for the queues of the topics."""
        with self._doing(f"to ask how far the group {group!r} has come"):
            asked = {queue: self._client.committed(group, TopicQueue(*queue)) for queue in self._known()}
        return {queue: offset for queue, offset in asked.items() if offset is not None}

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Record offsets (next to read) for a group, which no consumer need have joined; the last one counts."""
        asked = {self._checked(queue): offset for queue, offset in offsets.items()}
        fault_points.reach("bus.commit")
        with self._doing(f"to commit for the group {group!r}"):
            for queue, offset in asked.items():
                self._client.commit(group, queue, offset)
        fault_points.reach("bus.commit.done")

    def close(self) -> None:
        """Let go of name servers and brokers."""
        self._unfollow()
        self._ranges.close()
        self._client.close()

    def _unfollow(self) -> None:
        if self._following is not None:
            self._following.close()
        self._following, self._earliest = None, {}

    def _read(self, queue: Queue, start: int, end: int) -> Iterator[pa.RecordBatch]:
        fault_points.reach("bus.read")
        if start < end:
            with self._doing(f"to read {_name(queue)} from {start} to {end}"):
                yield from self._ranges.blocks(queue, start, end)

    def _pulled(self, queue: Queue, start: int, end: int) -> Blocks:
        yield from blocks_of_bodies(self._client.read_bodies(TopicQueue(*queue), start, end))

    def _known(self) -> Sequence[Queue]:
        return sorted(self._queues) if time.monotonic() < self._queues_until else self.queues()

    def _checked(self, queue: Queue) -> TopicQueue:
        if queue not in self._queues and queue not in self.queues():
            raise BusError(f"{self.uri}: there is no queue {_name(queue)} among those open")
        return TopicQueue(*queue)

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_bus_errors(self._servers, what)


def _name(queue: Queue) -> str:
    return f"{queue.topic}/{queue.broker}/{queue.queue_id}"
