from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.model.partition import Move, Partition
from eventbridge.policy.flow import Flow, flow

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PARTITION = Partition("orders", "", 0)


def moved(events: int, seconds: float, *, ago: float = 10, is_full: bool = True) -> Move:
    """Return what a batch moved that was committed so many seconds ago and took so many."""
    committed = NOW - timedelta(seconds=ago)
    return Move(PARTITION, events, committed - timedelta(seconds=seconds), committed, is_full)


def test_speeds_are_those_of_the_last_five_minutes() -> None:
    """Speeds do not include batches that were committed more than five minutes ago."""
    found = flow([moved(3_000, 10), moved(9_000, 10, ago=301)], published=600, lag=0, now=NOW)

    assert (found.published, found.settled) == (2.0, 10.0)


def test_capacity_is_the_median_of_ten_full_batches() -> None:
    """The capacity is the median of the last ten full batches; a batch that took all events shows no maximum."""
    full = [moved(1_000, 10, ago=400)] * 5 + [moved(2_000, 10, ago=500)] * 5 + [moved(90_000, 1, ago=600)] * 9

    assert flow([moved(1, 10, is_full=False), *full], 0, 0, NOW).capacity == 150.0


def test_the_lag_is_zero_when_capacity_has_outrun_publishing() -> None:
    """The time to zero lag includes the events that are published meanwhile."""
    assert flow([moved(1_000, 10)], published=6_000, lag=400, now=NOW).drains_in_seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("moves", "published", "lag", "forecast"),
    [
        pytest.param([], 0, 0, (0.0, False), id="no lag"),
        pytest.param([], 0, 9, (None, False), id="no capacity is known"),
        pytest.param([moved(1_000, 10)], 30_000, 9, (None, True), id="as much is published as can be settled"),
    ],
)
def test_a_forecast_says_what_it_knows(
    moves: list[Move], published: int, lag: int, forecast: tuple[float | None, bool]
) -> None:
    """The forecast is zero without lag, unknown without a capacity, and never for a growing lag."""
    found = flow(moves, published, lag, NOW)

    assert (found.drains_in_seconds, found.grows) == forecast


def test_a_batch_that_took_no_time_measures_nothing() -> None:
    """A batch without a duration, as after the clock went back, gives no capacity."""
    assert flow([moved(10, 0)], 0, 1, NOW) == Flow(0.0, 10 / 300, None, None)
