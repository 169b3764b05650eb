"""Computes the rates and capacity of a partition, the time until its lag is zero, and quantiles of latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from eventbridge.model.partition import Move
from eventbridge.model.stat import BOUNDS_MS

#: The period over which rates are measured. It is longer than a batch but short enough to be current.
WINDOW = timedelta(minutes=5)
#: The number of full batches whose median is the capacity, so that one batch delayed by a slow target does not skew it.
FULL_BATCHES = 10


@dataclass(frozen=True)
class Flow:
    """The rates of one partition in events per second: published and settled in the last five minutes, and capacity.

    `capacity` is the median rate of the last ten batches that took the allowed maximum; None if there was no such
    batch. `drains_in_seconds` is the time until the lag is zero if events are published at the same rate and settled at
    capacity; None if that is never, or unknown.
    """

    published: float
    settled: float
    capacity: float | None
    drains_in_seconds: float | None

    @property
    def grows(self) -> bool:
        """Whether events are published at least as fast as they can be settled, so that the lag never reaches zero."""
        return self.capacity is not None and self.drains_in_seconds is None


def flow(moves: Sequence[Move], published: int, lag: int, now: datetime) -> Flow:
    """Return the flow of a partition with `published` events within WINDOW and `lag` events that are not settled.

    `moves` are the moves by committed batches of this partition, newest first.
    """
    settled = sum(move.events for move in moves if move.committed_at > now - WINDOW)
    seconds = WINDOW.total_seconds()
    capacity = _capacity(moves)
    return Flow(published / seconds, settled / seconds, capacity, _drains_in(lag, capacity, published / seconds))


def _capacity(moves: Sequence[Move]) -> float | None:
    full = [move for move in moves if move.is_full and move.committed_at > move.planned_at][:FULL_BATCHES]
    speeds = [move.events / (move.committed_at - move.planned_at).total_seconds() for move in full]
    return median(speeds) if speeds else None


def _drains_in(lag: int, capacity: float | None, published: float) -> float | None:
    if lag == 0:
        return 0.0
    if capacity is None or capacity <= published:
        return None
    return lag / (capacity - published)


def quantile_seconds(buckets: Sequence[int], part: float, total_seconds: float) -> float | None:
    """Return an estimate of the time that `part` (0 to 1) of the deliveries did not exceed; None if there are none.

    `buckets` counts the deliveries by `BOUNDS_MS`, and `total_seconds` is the sum of their times. The estimate is in
    the bucket of the exact quantile, between its bounds. The sum determines the spread within buckets, because the
    times of each bucket are assumed to spread evenly over the same share of its width, at its lower end if the times
    are short overall. A bucket from 300 to 1,800 s with times of 360 s on average thus ends at 420 s. Times above the
    last bound count as that bound.
    """
    wanted, below, lower = part * sum(buckets), 0, 0
    if not wanted:
        return None
    share = _mean_share(buckets, total_seconds * 1_000)
    begin, end = max(0.0, 2 * share - 1), min(1.0, 2 * share)
    for bound, count in zip(BOUNDS_MS, buckets, strict=False):
        if count and below + count >= wanted:
            at = begin + (end - begin) * (wanted - below) / count
            return (lower + (bound - lower) * at) / 1_000
        below += count
        lower = bound
    return BOUNDS_MS[-1] / 1_000


def _mean_share(buckets: Sequence[int], total_ms: float) -> float:
    """Return the mean position of times in their buckets, from 0 (the lower bound) to 1 (the upper bound)."""
    lowers = (0, *BOUNDS_MS)
    excess = total_ms - sum(lower * count for lower, count in zip(lowers, buckets, strict=True))
    widths = zip(lowers, BOUNDS_MS, buckets, strict=False)
    room = sum((bound - lower) * count for lower, bound, count in widths)
    if not room or buckets[-1]:  # the last bucket is unbounded, so the spread in the others is unknown
        return 0.5
    return min(1.0, max(0.0, excess / room))
