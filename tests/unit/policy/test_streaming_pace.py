"""The rate of events decides how long a batch in streaming mode stays open and when its responses are recorded."""

from __future__ import annotations

import pytest

from eventbridge.policy.streaming import batch_is_over, poll_seconds, segment_is_due


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
def test_a_batch_stays_open_longer_if_few_events_arrive(age: float, events: int, usual: float, over: bool) -> None:
    """At ten events per second a batch is open as long as set; at fewer, up to six times as long, at most a minute."""
    assert batch_is_over(age, events, usual) == over


def test_a_batch_whose_close_sends_is_not_open_longer() -> None:
    """A batch whose close sends deliveries is not open longer, because its pending work waits for the close."""
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
def test_responses_are_recorded_less_often_if_few_arrive(age: float, responses: int, usual: float, due: bool) -> None:
    """Responses are recorded after 1 s at ten per second, after 5 s at fewer or in a bucket, or once many wait."""
    assert segment_is_due(age, responses, usual, max_responses=2_000) == due


@pytest.mark.parametrize(
    ("found", "since", "seconds"),
    [(0, 0.0, 0.003), (15, 0.0, 0.003), (16, 0.0, 0.008), (99, 0.0, 0.008), (100, 0.0, 0.0), (0, 5.0, 0.008)],
)
def test_the_bus_is_polled_less_often_if_many_events_or_none_arrive(found: int, since: float, seconds: float) -> None:
    """A poll costs about the same for ten events as for one; after a hundred events, more are already waiting."""
    assert poll_seconds(found, since) == seconds
