"""How long a window of the express lane is open, and when its answers are recorded."""

from __future__ import annotations

import pytest

from eventbridge.decision.express_pace import segment_is_due, window_is_over


@pytest.mark.parametrize(
    ("age", "events", "usual", "over"),
    [
        (9.9, 50_000, 10.0, False),
        (10.0, 100, 10.0, True),
        (10.0, 99, 10.0, False),
        (59.9, 60, 10.0, False),
        (60.0, 60, 10.0, True),
        (5.9, 6, 1.0, False),
        (6.0, 6, 1.0, True),
        (60.0, 1, 60.0, True),
    ],
)
def test_a_window_is_open_longer_where_little_comes(age: float, events: int, usual: float, over: bool) -> None:
    """With ten events a second it lasts as its file says, with fewer six times as long, never above a minute."""
    assert window_is_over(age, events, usual) == over


@pytest.mark.parametrize(
    ("age", "answers", "due"),
    [(60.0, 0, False), (0.1, 2_000, True), (0.9, 1_999, False), (1.0, 10, True), (1.0, 9, False), (5.0, 1, True)],
)
def test_answers_are_recorded_seldom_where_few_come(age: float, answers: int, due: bool) -> None:
    """Each second at ten a second, each five below; at once when there are as many as are kept."""
    assert segment_is_due(age, answers, usual=1.0, most=2_000) == due
