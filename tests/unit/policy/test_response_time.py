"""Which responses are slow, and until when a push starts requests whose responses can still come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.policy.response_to_outcome import last_start, slow_after

UNTIL = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timeout", "budget", "seconds"),
    [(10.0, 20.0, 2.0), (30.0, 20.0, 4.0), (6.0, 20.0, 1.2), (5.0, 20.0, 1.0), (1.0, 20.0, 1.0), (30.0, 2.0, 1.0)],
)
def test_a_response_is_slow_from_a_fifth_of_its_time_on(timeout: float, budget: float, seconds: float) -> None:
    """Its time is the timeout, or the push budget if that is shorter; what takes less than a second is never slow."""
    assert slow_after(timeout, budget) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("budget", "longest", "before_the_end"),
    [(20.0, 0.0, 0.25), (20.0, 0.2, 0.25), (20.0, 0.4, 0.5), (20.0, 4.0, 5.0), (20.0, 9.0, 10.0), (0.4, 0.0, 0.2)],
)
def test_a_push_starts_nothing_whose_response_would_come_after_its_budget(
    budget: float, longest: float, before_the_end: float
) -> None:
    """A response may take a quarter longer than the longest one so far; half of the budget is for sending anyway."""
    assert UNTIL - last_start(UNTIL, timedelta(seconds=budget), longest) == timedelta(seconds=before_the_end)
