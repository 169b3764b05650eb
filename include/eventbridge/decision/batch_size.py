"""How much a batch takes from a bus: in all, and of each queue. Pure; called by listen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventbridge.model.chunk import ChunkTotal
from eventbridge.model.queue import Queue
from eventbridge.rule.types import ChunkSize


class Waiting(NamedTuple):
    """What one queue holds for a group: next offset `start`, first offset still held, and the end."""

    queue: Queue
    start: int
    earliest: int
    end: int

    @property
    def readable_from(self) -> int:
        """The first offset that can still be read; what lies before it is a gap."""
        return min(max(self.start, self.earliest), self.end)


class Take(NamedTuple):
    """Offsets `start` (included) to `end` (excluded) to take from one queue."""

    queue: Queue
    start: int
    end: int


def plan_ranges(waiting: Sequence[Waiting], max_events: int) -> list[Take]:
    """Return how much to take of each queue: at most `max_events` in all, in proportion to what each holds.

    What is left over by rounding goes to the queues with the largest remainders, so that `max_events` are taken
    if there are as many. A queue that holds something gives at least one event, if `max_events` are enough for that.
    Offsets that a log no longer holds cost nothing and are taken with the rest, to be recorded as a gap. Queues that
    give nothing are left out.
    """
    held = [queue.end - queue.readable_from for queue in waiting]
    shares = _proportional(held, min(max_events, sum(held)))
    takes = [
        Take(each.queue, each.start, each.readable_from + share) for each, share in zip(waiting, shares, strict=True)
    ]
    return [take for take in takes if take.end > take.start]


def _proportional(amounts: Sequence[int], limit: int) -> list[int]:
    total = sum(amounts)
    if total == 0:
        return [0] * len(amounts)
    shares = [amount * limit // total for amount in amounts]
    remainders = [(-(amount * limit % total), index) for index, amount in enumerate(amounts)]
    for _, index in sorted(remainders)[: limit - sum(shares)]:
        shares[index] += 1
    return _nobody_starved(amounts, shares)


def _nobody_starved(amounts: Sequence[int], shares: list[int]) -> list[int]:
    """Give one to each that has something and got nothing, as long as the largest share can spare it.

    A queue with one event beside a backlog that never ends would wait for ever.
    """
    for index, amount in enumerate(amounts):
        largest = max(range(len(shares)), key=shares.__getitem__)
        if amount and not shares[index] and shares[largest] > 1:
            shares[largest] -= 1
            shares[index] = 1
    return shares


def events_within(max_events: int, max_bytes: int, mean_bytes: float | None) -> int:
    """Return how many events a batch may take so that `max_bytes` holds as far as is known; at least 1.

    `mean_bytes` is what an event of the bus came to in the last batch, None before the first.
    """
    if not mean_bytes:
        return max_events
    return max(1, min(max_events, int(max_bytes / mean_bytes)))


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
