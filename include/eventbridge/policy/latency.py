"""Estimates a quantile from latency buckets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eventbridge.model.stat import BOUNDS_MS


def quantile_seconds(buckets: Sequence[int], part: float, total_seconds: float) -> float | None:
    """Return an estimate of the time that a part (0 to 1) of the counted deliveries does not exceed; None without any.

    `buckets` counts them by `BOUNDS_MS`, `total_seconds` is the sum of their times. The estimate lies in the bucket of
    the exact quantile, between its bounds. The sum determines the spread within buckets: the times of each bucket are
    taken as even over the same share of its width, at its lower end if they are short overall. A bucket from 300 to
    1,800 s with times of 360 s on average thus ends at 420 s. Times above the last bound count as that bound.
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
    if not room or buckets[-1]:  # the last bucket has no width, so the spread in the others is unknown
        return 0.5
    return min(1.0, max(0.0, excess / room))
