"""A token bucket decides how many tokens a lease has, when the next is available, and how fast a rate rises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.config.quantities import parse_rate
from eventbridge.policy.rate_limit import Bucket, allowed_per_second, lease, second_of, tokens_within

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_bucket_that_was_never_used_holds_a_second() -> None:
    """A bucket of 200 per second gives 200 tokens immediately, and the next after 5 ms."""
    first = lease(None, 200.0, 1_000, NOW)
    second = lease(first.left, 200.0, 1_000, NOW)

    assert (first.granted, first.left.count) == (200, 0.0)
    assert second.granted == 0
    assert second.wait_seconds == pytest.approx(0.005)


def test_ten_a_minute_are_one_every_six_seconds() -> None:
    """A bucket of a slow rate holds one token, plus what comes in a second."""
    first = lease(None, 10 / 60, 5, NOW)
    early = lease(first.left, 10 / 60, 5, after(5))
    late = lease(early.left, 10 / 60, 5, after(6.001))
    idle = lease(late.left, 10 / 60, 5, after(3600))

    assert (first.granted, early.granted, late.granted, idle.granted) == (1, 0, 1, 1)
    assert early.wait_seconds == pytest.approx(1.0)


@pytest.mark.parametrize("late", [0.0, 0.3, 0.9])
def test_a_push_that_asks_late_gets_the_whole_rate(late: float) -> None:
    """A rate of 60 per minute gives 60 tokens, even if each lease comes up to a second late."""
    tokens, at, granted = lease(None, 1.0, 1, NOW).left, 0.0, 0
    while True:
        found = lease(tokens, 1.0, 1, after(at))
        tokens = found.left
        granted += found.granted
        at += found.wait_seconds + late
        if at > 61:
            break

    assert 59 <= granted <= 61


def test_no_more_than_is_wanted_is_taken() -> None:
    """A lease takes no more tokens than requested; the rest stays for other pushes."""
    found = lease(None, 200.0, 3, NOW)

    assert (found.granted, found.left.count) == (3, 197.0)


def test_a_clock_that_goes_back_fills_nothing() -> None:
    """A clock that goes back adds no tokens, and its time is not counted twice later."""
    empty = Bucket(0.0, after(10))

    assert lease(empty, 10.0, 5, NOW).granted == 0
    assert lease(lease(empty, 10.0, 5, NOW).left, 10.0, 50, after(10.1)).granted == 1


@given(
    st.floats(min_value=1 / 60, max_value=1_000),
    st.lists(st.tuples(st.floats(min_value=0, max_value=3), st.integers(min_value=1, max_value=5_000)), max_size=60),
)
def test_any_leases_keep_the_rate(rate: float, asked: list[tuple[float, int]]) -> None:
    """For any requests, at most rate * t tokens plus one full bucket are given in any t seconds."""
    tokens, at, given_out = None, 0.0, []
    for wait, wanted in asked:
        at += wait
        found = lease(tokens, rate, wanted, after(at))
        tokens = found.left
        given_out.append((at, found.granted))

    for start in range(len(given_out)):
        total = 0
        for end_at, granted in given_out[start:]:
            total += granted
            assert total <= rate * (end_at - given_out[start][0]) + max(1.0, rate) + min(1.0, rate) + 0.01


def test_a_ramp_begins_slowly_and_never_exceeds_the_rate() -> None:
    """The rate begins at 5 per second and doubles every 2.5 s; after 30 s the target's own rate applies, or none."""
    until = after(30)

    assert allowed_per_second(None, until, NOW) == pytest.approx(5.0)
    assert allowed_per_second(None, until, after(5)) == pytest.approx(20.0)
    assert allowed_per_second(None, until, after(29.99)) == pytest.approx(5 * 2**12, rel=0.01)
    assert allowed_per_second(8.0, until, after(5)) == 8.0
    assert allowed_per_second(8.0, until, after(30)) == 8.0
    assert allowed_per_second(None, until, after(30)) is None
    assert allowed_per_second(None, None, NOW) is None


@pytest.mark.parametrize(("rate", "tokens"), [(200.0, 200), (10 / 60, 1), (1.5, 2)])
def test_a_second_is_leased_at_a_time(rate: float, tokens: int) -> None:
    """A lease covers a second, and has at least one token."""
    assert second_of(rate) == tokens


@pytest.mark.parametrize(("text", "rate"), [("200/s", 200.0), ("10/m", 10 / 60), ("1/m", 1 / 60)])
def test_rates_are_read(text: str, rate: float) -> None:
    """A rate is a whole number per second or per minute."""
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "200", "0/s", "-1/s", "1.5/s", "200/h", "200 / s", "200/sec", "12345678/s"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    """The error for an invalid rate has an example."""
    with pytest.raises(ValueError, match="200/s or 10/m"):
        parse_rate(text)


def test_a_rate_allows_so_many_deliveries_within_a_time() -> None:
    """A rate allows rate times seconds deliveries; without a rate or a recent recovery, any number."""
    assert tokens_within(200.0, None, NOW, 20.0) == 4_000
    assert tokens_within(None, None, NOW, 20.0) is None
    assert tokens_within(200.0, after(-1), NOW, 20.0) == 4_000


def test_a_ramp_allows_what_it_comes_to_within_a_time() -> None:
    """While the rate rises, it allows the sum over the seconds, up to the target's rate; after that, any number."""
    begun = tokens_within(None, after(30), NOW, 20.0)
    summed = sum(allowed_per_second(None, after(30), after(number / 100)) or 0 for number in range(2_000)) / 100

    assert begun == pytest.approx(summed, rel=0.01)
    assert begun == pytest.approx(4_598, rel=0.01)
    assert tokens_within(100.0, after(30), NOW, 20.0) == 2_000
    assert tokens_within(None, after(19), NOW, 20.0) is None
