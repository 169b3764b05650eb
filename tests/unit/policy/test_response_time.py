"""Response times decide which responses are slow, and when a push stops starting requests."""

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
    """A response is slow from a fifth of the timeout, or of the push budget if shorter, but never under a second."""
    assert slow_after(timeout, budget) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("budget", "longest", "before_the_end"),
    [(20.0, 0.0, 0.25), (20.0, 0.2, 0.25), (20.0, 0.4, 0.5), (20.0, 4.0, 5.0), (20.0, 9.0, 10.0), (0.4, 0.0, 0.2)],
)
def test_a_push_starts_nothing_whose_response_would_come_after_its_budget(
    budget: float, longest: float, before_the_end: float
) -> None:
    """A push starts no request whose response may miss its budget, but always sends for half of the budget."""
    assert UNTIL - last_start(UNTIL, timedelta(seconds=budget), longest) == timedelta(seconds=before_the_end)
