"""Reads a quantile out of latency buckets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eventbridge.model.figure import BOUNDS_MS


def quantile_seconds(buckets: Sequence[int], part: float) -> float | None:
    """Return the time that a part (0 to 1) of what the buckets count does not exceed; None of empty ones.

    Between two bounds it is drawn as a straight line, as Prometheus' `histogram_quantile` does; what is later than the
    last bound counts as that.
    """
    wanted, below = part * sum(buckets), 0
    if not wanted:
        return None
    lower = 0
    for bound, count in zip(BOUNDS_MS, buckets, strict=False):
        if count and below + count >= wanted:
            return (lower + (bound - lower) * (wanted - below) / count) / 1_000
        below += count
        lower = bound
    return BOUNDS_MS[-1] / 1_000
