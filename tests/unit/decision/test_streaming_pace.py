"""How long a batch in streaming mode is open, and when its responses are recorded."""

from __future__ import annotations

import pytest

from eventbridge.decision.streaming_pace import batch_is_over, look_seconds, segment_is_due


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
def test_a_batch_is_open_longer_where_little_comes(age: float, events: int, usual: float, over: bool) -> None:
    """With ten events a second it lasts as its file says, with fewer six times as long, never above a minute."""
    assert batch_is_over(age, events, usual) == over


def test_a_batch_whose_close_sends_is_not_open_longer() -> None:
    """What it left waits for that, however little comes."""
    assert batch_is_over(10.0, 1, 10.0, waits=True)
    assert not batch_is_over(9.9, 1, 10.0, waits=True)


@pytest.mark.parametrize(
    ("age", "responses", "usual", "due"),
    [
        (60.0, 0, 1.0, False),
        (0.1, 2_000, 1.0, True),
        (0.7, 1_999, 1.0, False),
        (0.8, 8, 1.0, True),
        (0.8, 7, 1.0, False),
        (4.0, 1, 1.0, True),
        (3.9, 1_999, 12.0, False),
        (4.0, 1, 12.0, True),
    ],
)
def test_responses_are_recorded_seldom_where_few_come(age: float, responses: int, usual: float, due: bool) -> None:
    """A fifth before its time is over, a second at ten a second, five below and in a bucket; at once when many wait."""
    assert segment_is_due(age, responses, usual, most=2_000) == due


@pytest.mark.parametrize(
    ("found", "since", "seconds"),
    [(0, 0.0, 0.003), (15, 0.0, 0.003), (16, 0.0, 0.008), (99, 0.0, 0.008), (100, 0.0, 0.0), (0, 5.0, 0.008)],
)
def test_the_bus_is_looked_at_less_often_where_much_comes_and_where_nothing_does(
    found: int, since: float, seconds: float
) -> None:
    """A look costs about the same for ten events as for one; where a hundred were found more wait already."""
    assert look_seconds(found, since) == seconds
