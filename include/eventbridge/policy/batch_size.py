"""Decides how many events a batch takes from a bus, in total and from each partition. Listen calls it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from eventbridge.model.chunk import ChunkTotal
from eventbridge.model.partition import Partition
from eventbridge.rules.types import ChunkSize

#: The maximum number of events in a replay or redrive batch, and the maximum of their bytes. Unlike listen, the planner
#: of such a batch holds the events in memory.
MAX_EVENTS_IN_MEMORY = 50_000
MAX_BYTES_IN_MEMORY = 64 << 20
#: The maximum number of events in a runner's first batch, and the minimum to which a slow runner's batches shrink.
FIRST_EVENTS = 50_000
_LEAST_EVENTS = 1_000
#: The maximum factor by which the next batch grows, normally and in a backlog. A small batch predicts a large one
#: poorly, because the fixed cost of a batch is part of its time. With a factor of 2, a backlog needed seven batches
#: instead of five.
_GROWTH, _BACKLOG_GROWTH = 4, 8
#: In a backlog that takes longer than the target duration to drain, a batch may last this multiple of that duration.
#: Its events have waited longer anyway, and each batch has a fixed cost of a few seconds.
_BACKLOG_TIMES = 2.0
Each = TypeVar("Each")


class Waiting(NamedTuple):
    """A partition as a consumer group sees it: the next offset `start`, the first offset still in the log, and the
    end."""

    partition: Partition
    start: int
    earliest: int
    end: int

    @property
    def readable_from(self) -> int:
        """The first offset that can still be read; offsets before it are a gap."""
        return min(max(self.start, self.earliest), self.end)


class Take(NamedTuple):
    """Offsets `start` (included) to `end` (excluded) to take from one partition."""

    partition: Partition
    start: int
    end: int


def plan_ranges(waiting: Sequence[Waiting], max_events: int, weights: Mapping[str, int] | None = None) -> list[Take]:
    """Return which offsets to take from each partition: at most `max_events` in total, shared equally among the topics,
    and within a topic among its partitions.

    A quiet topic therefore does not wait for the backlog of another. With `weights`, three times as many events are
    taken from a topic of weight 3 as from one of weight 1, the default. The unused part of a share goes to the others,
    so that `max_events` are taken if that many exist. At least one event is taken from each partition that has any, if
    `max_events` suffices. Offsets that the log no longer holds do not count towards `max_events`, but they are included
    so that they are recorded as a gap. Partitions without events are omitted.
    """
    # The remainder goes to the first partitions, so the order rotates from batch to batch. Otherwise, the last
    # partitions would get nothing in small batches.
    turn = sum(each.start for each in waiting) % max(1, len(waiting))
    waiting = [*waiting[turn:], *waiting[:turn]]
    available = [partition.end - partition.readable_from for partition in waiting]
    shares = _shares([each.partition.topic for each in waiting], available, max_events, weights or {})
    takes = [
        Take(each.partition, each.start, each.readable_from + share)
        for each, share in zip(waiting, shares, strict=True)
    ]
    return sorted(take for take in takes if take.end > take.start)


def _shares(topics: Sequence[str], amounts: Sequence[int], limit: int, weights: Mapping[str, int]) -> list[int]:
    shares = fair_shares(limit, [min(amount, 1) for amount in amounts])  # first one event from each partition with any
    remaining = limit - sum(shares)
    partitions: dict[str, list[int]] = defaultdict(list)
    for index, topic in enumerate(topics):
        partitions[topic].append(index)
    beyond = [amount - share for amount, share in zip(amounts, shares, strict=True)]
    wants = [sum(beyond[index] for index in each) for each in partitions.values()]
    of_topics = fair_shares(remaining, wants, [weights.get(topic, 1) for topic in partitions])
    for each, of_topic in zip(partitions.values(), of_topics, strict=True):
        for index, share in zip(each, fair_shares(of_topic, [beyond[index] for index in each]), strict=True):
            shares[index] += share
    return shares


def events_within(max_events: int, max_bytes: int, mean_bytes: float | None) -> int:
    """Return an estimate of how many events a batch may take to stay within `max_bytes`; at least 1.

    `mean_bytes` is the mean size of an event in the last batch of the bus, or None before the first.
    """
    if not mean_bytes:
        return max_events
    return max(1, min(max_events, int(max_bytes / mean_bytes)))


def paced_events(events: int, seconds: float, target_seconds: float, *, is_full: bool, backlog: int = 0) -> int | None:
    """Return how many events a batch may take to last `target_seconds`, given that a batch of `events` took `seconds`.

    If the `backlog` (in events) takes longer than that to drain, the batch may last up to twice as long. From one batch
    to the next, the number grows at most to four times as many (eight times in a backlog) and shrinks at most to half,
    but never below 1,000 after a slow batch. If a batch of few events was slow, its tasks were slow to start, and to
    take as few events again would let a backlog grow forever. Returns None if that batch allows no conclusion, because
    it was empty, or was quick enough but not full.
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
    """The part of a batch for one pool: its deliveries, and how many chunks they fill."""

    pool: str
    deliveries: int
    chunks: float


def part_of_chunks(total: ChunkTotal, small: ChunkSize) -> Part:
    """Return how many deliveries of a batch are handed out to a pool, and how many full chunks they make.

    Several chunks count as full, because each except the last has no room for the next piece. A single chunk counts as
    the share of a small chunk that its deliveries or bytes fill, at most as one.
    """
    return Part(total.pool, total.rows, min(total.chunks, max(total.rows / small.deliveries, total.size / small.size)))


@dataclass(frozen=True)
class FanOut:
    """The deliveries of a number of events, and the chunks that they filled in each pool."""

    events: int
    deliveries: int
    chunks: Mapping[str, float]

    @classmethod
    def from_parts(cls, events: int, parts: Iterable[Part]) -> FanOut:
        """Return the fan-out of `events` events in total, in one or more batches."""
        chunks: dict[str, float] = defaultdict(float)
        deliveries = 0
        for part in parts:
            deliveries += part.deliveries
            chunks[part.pool] += part.chunks
        return cls(events, deliveries, dict(chunks))


def events_handed_out(fan_out: FanOut, room: Mapping[str, int], max_chunks: int, max_deliveries: int) -> int | None:
    """Return how many events a batch may take so that all its deliveries are handed out, given the fan-out of earlier
    batches.

    The result is at least 1. It is None, which means any number, if no batch is known or no event matched. `room` is
    the number of chunks that may be handed out to each pool; chunks for pools that are not in `room` count only towards
    `max_chunks`, the limit for all pools together.
    """
    shares = [(max_chunks, sum(fan_out.chunks.values())), (max_deliveries, fan_out.deliveries)]
    shares += [(room[pool], chunks) for pool, chunks in fan_out.chunks.items() if pool in room]
    most = [limit * fan_out.events / came_to for limit, came_to in shares if came_to]
    return max(1, math.floor(min(most))) if most and fan_out.events else None


def round_robin(waiting: Mapping[Each, datetime], served: Mapping[Each, str]) -> list[Each]:
    """Return the waiting keys in the order in which to serve them, so that each is served once per round.

    `waiting` maps a key to the time since when it has been waiting, and `served` to the id of the batch that last
    served it; ids sort by time. Keys that were never served come first, and the most recently served one comes last.
    Among keys served by the same batch, the one that has been waiting longest comes first.
    """
    return sorted(waiting, key=lambda each: (served.get(each, ""), waiting[each]))


def fair_shares(room: int, wants: Sequence[int], weights: Sequence[int] | None = None) -> list[int]:
    """Return the share of `room` for each demand: never more than the demand, and equal shares for equal demands.

    With `weights`, whole numbers of at least 1, a demand of twice the weight gets twice the share. A remainder goes to
    the first demands, one each.
    """
    shares = [0] * len(wants)
    hungry = [index for index, want in enumerate(wants) if want > 0]
    while room > 0 and hungry:
        at_once = room // (len(hungry) if weights is None else sum(weights[index] for index in hungry))
        for index in hungry[:room]:
            each = max(1, at_once * (1 if weights is None else weights[index]))
            given = min(each, wants[index] - shares[index], room)
            shares[index] += given
            room -= given
        hungry = [index for index in hungry if shares[index] < wants[index]]
    return shares
