"""The breaker opens and closes, decides what is sent meanwhile, and disables a target."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import (
    Count,
    Ended,
    Tally,
    admits,
    disabled,
    first_second,
    listed_state,
    next_status,
    pause_of,
    recovered,
    trips,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = int(NOW.timestamp())
OK = TargetStatus("late", "crm", "ok", "", NOW - timedelta(hours=1))
OPENED = replace(OK, state="degraded", reason="10 of 10", since=NOW - timedelta(seconds=40), until=NOW)


def tally(attempts: int = 0, failed: int = 0, **fields: object) -> Tally:
    counts = {SECOND: Count(attempts, failed)} if attempts else {}
    return Tally("late", "crm", counts, **fields)  # type: ignore[arg-type]


def ended(settled: int, allowed: int, *, delivered: int | None = None, spent: bool = True) -> Ended:
    return Ended(settled, allowed, settled if delivered is None else delivered, spent)


@pytest.mark.parametrize(
    ("attempts", "failed", "opens"),
    [(9, 9, False), (10, 6, False), (10, 7, True), (100, 69, False), (100, 70, True), (0, 0, False)],
)
def test_seventy_of_a_hundred_and_seven_of_ten_open_it(attempts: int, failed: int, opens: bool) -> None:
    """The breaker opens after at least 10 attempts of which at least 70 % failed."""
    assert trips(Count(attempts, failed)) is opens


def test_it_opens_for_thirty_seconds() -> None:
    """The attempts of all pushes in the window open the breaker for 30 s; its reason has the numbers."""
    status = next_status(OK, tally(2, 2), Count(12, 10), NOW)

    assert (status.state, status.since, status.until) == ("degraded", NOW, NOW + timedelta(seconds=30))
    assert status.reason == "10 of 12 attempts failed within 30 s"


def test_the_window_is_thirty_seconds() -> None:
    """The window contains each second until 30 s after its end."""
    assert first_second(NOW) == SECOND - 29
    assert first_second(NOW + timedelta(seconds=0.9)) == SECOND - 29


@pytest.mark.parametrize(
    ("status", "admitted"),
    [
        (None, "all"),
        (OK, "all"),
        (replace(OPENED, until=NOW + timedelta(seconds=1)), "none"),
        (OPENED, "probes"),
        (replace(OPENED, state="half-open", good=2, until=NOW + timedelta(seconds=1)), "none"),
        (replace(OPENED, state="half-open", good=2), "probes"),
        (replace(OPENED, until=None), "probes"),
        (replace(OPENED, slow=True), "apart"),
        (disabled(OK, "gone", NOW), "none"),
        (recovered(OPENED, "5 probes were good", NOW), "all"),
    ],
)
def test_the_state_of_the_breaker_decides_about_sending(status: TargetStatus | None, admitted: str) -> None:
    """A healthy target gets all pushes, an open one none and later one probe, and a slow one the slow lane."""
    assert admits(status, NOW) == admitted


def test_five_good_probes_close_it() -> None:
    """Five good probes, in one report or several, close the breaker; the rate then rises for 30 s."""
    one_by_one = OPENED
    for _ in range(4):
        one_by_one = next_status(one_by_one, tally(1, probes=(True,)), Count(1), NOW)
        assert one_by_one.state == "half-open"
    one_by_one = next_status(one_by_one, tally(1, probes=(True,)), Count(1), NOW)

    assert one_by_one == next_status(OPENED, tally(5, probes=(True,) * 5), Count(5), NOW)
    assert (one_by_one.state, one_by_one.since, one_by_one.until) == ("ok", NOW, NOW + timedelta(seconds=30))
    assert one_by_one.good == 0


def test_one_bad_probe_opens_it_again() -> None:
    """A failed probe reopens the breaker and resets the count of good probes, but not the time of the first failure."""
    half_open = next_status(OPENED, tally(4, probes=(True,) * 4), Count(4), NOW)

    status = next_status(half_open, tally(1, 1, probes=(False,)), Count(5, 1), NOW)

    assert (status.state, status.good, status.until) == ("degraded", 0, NOW + timedelta(seconds=30))
    assert status.since == OPENED.since


def test_failures_before_the_recovery_do_not_open_it_again() -> None:
    """Failures before the recovery that are still in the window do not open the breaker again."""
    assert next_status(OPENED, tally(5, probes=(True,) * 5), Count(40, 35), NOW).state == "ok"


def test_responses_that_come_late_change_nothing_while_it_is_open() -> None:
    """Responses to requests that were in flight when the breaker opened do not change it."""
    status = replace(OPENED, until=NOW + timedelta(seconds=20))

    assert next_status(status, tally(20), Count(60, 40), NOW) == status
    assert next_status(status, tally(20, 20), Count(60, 60), NOW) == replace(status, failing_since=NOW)


def test_a_target_that_delivers_but_not_half_is_slow() -> None:
    """A target that settles less than half within a budget is slow; the slow lane has its deliveries immediately."""
    status = next_status(OK, tally(49, ended=ended(49, 100)), Count(49), NOW)

    assert (status.state, status.slow, status.until) == ("degraded", True, NOW)
    assert status.reason == "settled 49 of 100 deliveries within the push budget"


def test_a_target_that_delivers_nothing_within_a_budget_is_left_alone() -> None:
    """If a push gets no response within its budget, the breaker opens for 30 s, whatever the number of attempts."""
    status = next_status(OK, tally(ended=ended(0, 2)), Count(), NOW)

    assert (status.state, status.slow, status.until) == ("degraded", False, NOW + timedelta(seconds=30))


@pytest.mark.parametrize("end", [ended(50, 100), ended(49, 100, spent=False), ended(0, 0)])
def test_half_is_enough(end: Ended) -> None:
    """A push that settled half, or stopped for another reason than its budget, does not count against the target."""
    assert next_status(OK, tally(50, ended=end), Count(50), NOW) == OK


def test_a_push_that_ran_out_of_deliveries_to_probe_with_lets_the_next_probe() -> None:
    """A push without deliveries left to probe with releases its claim, so that another push can probe."""
    claimed = replace(OPENED, until=NOW + timedelta(seconds=20))

    status = next_status(claimed, tally(2, probes=(True, True), ended=ended(2, 2, spent=False)), Count(2), NOW)

    assert (status.state, status.good, status.until) == ("half-open", 2, NOW)


def test_a_target_that_fails_for_days_is_disabled_if_its_file_says_so() -> None:
    """The time to disable a target is measured from the first failure after the last success."""
    week = 7 * 86_400.0
    failing = next_status(OK, tally(1, 1, disable_after_seconds=week), Count(1, 1), NOW - timedelta(days=8))
    assert failing.failing_since == NOW - timedelta(days=8)
    well = next_status(failing, tally(2, 1, disable_after_seconds=week), Count(2, 1), NOW)

    status = next_status(failing, tally(1, 1, disable_after_seconds=week), Count(1, 1), NOW)

    assert (status.state, status.reason) == ("disabled", "every attempt failed for 8.0 days")
    assert next_status(failing, tally(1, 1), Count(1, 1), NOW).state == "ok"
    assert (well.state, well.failing_since) == ("ok", None)


def test_a_disabled_target_stays_so() -> None:
    """A disabled target stays disabled, whatever a push in progress still reports."""
    gone = disabled(OK, "the target responded with 410", NOW)

    assert next_status(gone, tally(50, probes=(True,) * 5, ended=ended(50, 50)), Count(50), NOW) == gone


@pytest.mark.parametrize("status", [OK, OPENED, replace(OPENED, state="half-open", good=2)])
def test_a_pause_changes_nothing_else(status: TargetStatus) -> None:
    """A pause changes only the time of sending; the later of two pauses counts, and an expired one has no effect."""
    later, sooner = NOW + timedelta(seconds=30), NOW + timedelta(seconds=2)
    paused = next_status(
        next_status(status, tally(paused_until=later), Count(), NOW), tally(paused_until=sooner), Count(), NOW
    )

    assert paused == replace(status, paused_until=later)
    assert pause_of(paused, NOW) == later
    assert pause_of(paused, later) is None
    assert pause_of(None, NOW) is None


@pytest.mark.parametrize(
    ("status", "retries_wait", "listed"),
    [
        (OK, True, "ok"),
        (replace(OK, failing_since=NOW), True, "failing"),
        (replace(OK, failing_since=NOW), False, "ok"),
        (replace(OK, failing_since=NOW, paused_until=NOW + timedelta(seconds=1)), True, "paused"),
        (replace(OK, failing_since=NOW, paused_until=NOW), True, "ok"),
        (replace(OK, failing_since=NOW, paused_until=NOW - timedelta(seconds=30)), True, "failing"),
        (replace(OPENED, failing_since=NOW), True, "degraded"),
        (disabled(replace(OK, failing_since=NOW), "gone", NOW), True, "disabled"),
    ],
)
def test_a_target_that_is_ok_is_listed_as_failing(status: TargetStatus, retries_wait: bool, listed: str) -> None:
    """A target is failing if it is ok otherwise, each attempt since a time failed, and deliveries wait for a retry."""
    assert listed_state(status, NOW, retries_wait=retries_wait) == listed
    assert admits(replace(OK, failing_since=NOW), NOW) == "all", "the state is only listed"
