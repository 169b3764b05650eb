"""The distance of a time from now, as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.api.page.render import distance

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.9, "now"),
        (-0.9, "now"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (7_199, "1 h ago"),
        (169_200, "1 d ago"),
        (86_400_000, "1,000 d ago"),
        (-119, "in 1 min"),
    ],
)
def test_a_distance_is_written_in_its_largest_unit(seconds: float, said: str) -> None:
    """Rounded down, in the past and in the future."""
    assert distance(NOW - timedelta(seconds=seconds), NOW) == said
