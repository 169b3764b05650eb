"""Quantiles are estimated from latency buckets and the sum of the times."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.model.stat import BOUNDS_MS, BUCKETS
from eventbridge.policy.flow import quantile_seconds

times_ms = st.lists(st.integers(1, BOUNDS_MS[-1]), min_size=1, max_size=200)


def counted(times: list[int]) -> tuple[list[int], float]:
    """Return the buckets of times in milliseconds, and the sum of the times in seconds."""
    buckets = [0] * BUCKETS
    for each in times:
        buckets[bisect_left(BOUNDS_MS, each)] += 1
    return buckets, sum(times) / 1_000


def bucket_of(time_ms: float) -> tuple[int, int]:
    """Return the bounds of the bucket that contains a time."""
    upper = bisect_left(BOUNDS_MS, time_ms)
    return (0, *BOUNDS_MS)[upper], BOUNDS_MS[upper]


@given(times_ms, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_an_estimate_lies_in_the_bucket_of_the_exact_quantile(times: list[int], part: float) -> None:
    """For any times, the estimate is within the bounds of the bucket that contains the exact quantile."""
    exact = sorted(times)[ceil(part * len(times)) - 1]
    lower, upper = bucket_of(exact)
    buckets, total = counted(times)
    found = quantile_seconds(buckets, part, total)

    assert found is not None
    assert lower <= found * 1_000 <= upper


@given(times_ms)
def test_a_higher_quantile_is_no_shorter(times: list[int]) -> None:
    """p50 is not above p99, and p99 is not above the longest time."""
    buckets, total = counted(times)
    found = [quantile_seconds(buckets, part, total) or 0.0 for part in (0.5, 0.99, 1.0)]

    assert found == sorted(found)


def test_a_wide_bucket_ends_where_its_times_do() -> None:
    """The p99 of times from 290 to 430 s is about 430 s, not 1,785 s, although their bucket ends at 1,800 s."""
    buckets, total = counted([290_000 + 1_400 * number for number in range(101)])

    assert quantile_seconds(buckets, 0.5, total) == pytest.approx(365, abs=15)
    assert quantile_seconds(buckets, 0.99, total) == pytest.approx(430, abs=40)


def test_times_at_the_end_of_a_bucket_are_reported_there() -> None:
    """If all times are near a bucket's upper bound, the median is not the middle of the bucket."""
    buckets, total = counted([1_700_000] * 50 + [1_790_000] * 50)

    assert quantile_seconds(buckets, 0.5, total) == pytest.approx(1_745, abs=10)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_times_that_fill_a_bucket_are_exact(part: float) -> None:
    """Times that fill a bucket evenly give the exact quantile."""
    buckets, total = counted(list(range(501, 1_001)))

    assert quantile_seconds(buckets, part, total) == pytest.approx(0.5 + part / 2, abs=0.002)


def test_of_nothing_there_is_no_quantile() -> None:
    """Empty buckets have no quantile, and times beyond the last bound count as the last bound."""
    beyond = [0] * (BUCKETS - 1) + [3]

    assert quantile_seconds([0] * BUCKETS, 0.5, 0.0) is None
    assert quantile_seconds(beyond, 0.99, 1e9) == BOUNDS_MS[-1] / 1_000
