"""How much a batch takes from a bus: in all, and of each partition. Pure; called by listen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventbridge.decision.fair_turns import fair_shares
from eventbridge.model.chunk import ChunkTotal
from eventbridge.model.partition import Partition
from eventbridge.rule.types import ChunkSize


class Waiting(NamedTuple):
    """What one partition holds for a group: next offset `start`, first offset still held, and the end."""

    partition: Partition
    start: int
    earliest: int
    end: int

    @property
    def readable_from(self) -> int:
        """The first offset that can still be read; what lies before it is a gap."""
        return min(max(self.start, self.earliest), self.end)


class Take(NamedTuple):
    """Offsets `start` (included) to `end` (excluded) to take from one partition."""

    partition: Partition
    start: int
    end: int


def plan_ranges(waiting: Sequence[Waiting], max_events: int, weights: Mapping[str, int] | None = None) -> list[Take]:
    """Return how much to take of each partition: at most `max_events` in all, the same of every topic, then of every
    partition.

    `weights`: a topic of weight 3 gives three times as much as one of weight 1, which is that of one not named.
    What one has less of than its share goes to the others, so that `max_events` are taken if there are as many. So a
    quiet topic beside a backlog waits for none of it. A partition that holds something gives at least one event, if
    `max_events` are enough for that. Offsets that a log no longer holds cost nothing and are taken with the rest, to be
    recorded as a gap. Partitions that give nothing are left out.
    """
    # What is odd goes to the first: another partition each time, or with few events a batch the last ones would starve.
    turn = sum(each.start for each in waiting) % max(1, len(waiting))
    waiting = [*waiting[turn:], *waiting[:turn]]
    held = [partition.end - partition.readable_from for partition in waiting]
    shares = _shares([each.partition.topic for each in waiting], held, max_events, weights or {})
    takes = [
        Take(each.partition, each.start, each.readable_from + share)
        for each, share in zip(waiting, shares, strict=True)
    ]
    return sorted(take for take in takes if take.end > take.start)


def _shares(topics: Sequence[str], amounts: Sequence[int], limit: int, weights: Mapping[str, int]) -> list[int]:
    shares = fair_shares(limit, [min(amount, 1) for amount in amounts])  # a partition with one event is never starved
    left = limit - sum(shares)
    partitions: dict[str, list[int]] = defaultdict(list)
    for index, topic in enumerate(topics):
        partitions[topic].append(index)
    beyond = [amount - share for amount, share in zip(amounts, shares, strict=True)]
    wants = [sum(beyond[index] for index in each) for each in partitions.values()]
    of_topics = fair_shares(left, wants, [weights.get(topic, 1) for topic in partitions])
    for each, of_topic in zip(partitions.values(), of_topics, strict=True):
        for index, share in zip(each, fair_shares(of_topic, [beyond[index] for index in each]), strict=True):
            shares[index] += share
    return shares


def events_within(max_events: int, max_bytes: int, mean_bytes: float | None) -> int:
    """Return how many events a batch may take so that `max_bytes` holds as far as is known; at least 1.

    `mean_bytes` is what an event of the bus came to in the last batch, None before the first.
    """
    if not mean_bytes:
        return max_events
    return max(1, min(max_events, int(max_bytes / mean_bytes)))


#: The most events of a replay or redrive batch: its planner has them in memory, unlike listen.
HELD_EVENTS = 50_000
HELD_BYTES = 64 << 20

#: What a runner's first batch takes at most, and the least that a slow one is brought down to.
FIRST_EVENTS = 50_000
_LEAST_EVENTS = 1_000
#: How much larger the next one is at most, and in a backlog. What a batch costs whatever its size is in its time, so
#: that a small one foretells too little of a large one; with 2, a backlog took seven batches to where five do.
_GROWTH, _BACKLOG_GROWTH = 4, 8
#: In a backlog that takes longer than the target duration a batch may take so many times that one: its events have
#: waited for longer, and each batch costs some seconds whatever its size is.
_BACKLOG_TIMES = 2.0


def paced_events(events: int, seconds: float, target_seconds: float, *, is_full: bool, backlog: int = 0) -> int | None:
    """Return how many events a batch may take so that it takes `target_seconds`, as one of `events` took `seconds`.

    Of a `backlog`, in events, that takes longer it may take up to twice as long. From one batch to the next it is at
    most four times as many, of a backlog eight times, or half. None: that batch says nothing, as it was not full and
    quick enough. A slow one of few events says that tasks start slowly: as few again would let a backlog grow for ever.
    """
    is_slow = seconds > target_seconds
    if not events or not (is_full or is_slow):
        return None
    seconds = max(seconds, 0.001)
    drain_seconds = backlog * seconds / events
    growth = _BACKLOG_GROWTH if drain_seconds > target_seconds else _GROWTH
    target_seconds = max(target_seconds, min(_BACKLOG_TIMES * target_seconds, drain_seconds))
    wanted = events * target_seconds / seconds
    least = _LEAST_EVENTS if is_slow else min(events, _LEAST_EVENTS)
    return round(max(least, min(growth * events, max(events / 2, wanted))))


class Part(NamedTuple):
    """What of a batch is for one pool: deliveries, and how many chunks they fill."""

    pool: str
    deliveries: int
    chunks: float


def part_of_chunks(total: ChunkTotal, small: ChunkSize) -> Part:
    """Return what the chunks of a batch that are handed out to a pool come to.

    Several count as full: each but the last has no room for what came next. One alone counts as no more than it would
    if each of its targets had small chunks, as what else is in it is not looked at.
    """
    return Part(total.pool, total.rows, min(total.chunks, max(total.rows / small.deliveries, total.size / small.size)))


@dataclass(frozen=True)
class FanOut:
    """What so many events came to: deliveries, and the chunks they filled in each pool."""

    events: int
    deliveries: int
    chunks: Mapping[str, float]

    @classmethod
    def of(cls, events: int, parts: Iterable[Part]) -> FanOut:
        """Return what `events` in all came to, in one batch or several."""
        chunks: dict[str, float] = defaultdict(float)
        deliveries = 0
        for part in parts:
            deliveries += part.deliveries
            chunks[part.pool] += part.chunks
        return cls(events, deliveries, dict(chunks))


def events_handed_out(fan_out: FanOut, room: Mapping[str, int], max_chunks: int, max_deliveries: int) -> int | None:
    """Return how many events a batch may take so that all its deliveries are handed out, by what others came to.

    At least 1; None: any number, as nothing is known or nothing matched. `room` is for how many chunks there is room
    in a pool; what is for other pools counts only towards `max_chunks`, which is for all together.
    """
    shares = [(max_chunks, sum(fan_out.chunks.values())), (max_deliveries, fan_out.deliveries)]
    shares += [(room[pool], chunks) for pool, chunks in fan_out.chunks.items() if pool in room]
    most = [limit * fan_out.events / came_to for limit, came_to in shares if came_to]
    return max(1, math.floor(min(most))) if most and fan_out.events else None
