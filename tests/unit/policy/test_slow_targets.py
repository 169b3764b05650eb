"""Slow responses move a target to the slow lane, and quick ones move it back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import Count, Ended, Tally, is_slow, next_status

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OK = TargetStatus("late", "crm", "ok", "", NOW - timedelta(hours=1))
SLOW = replace(OK, state="degraded", reason="slow", since=NOW - timedelta(minutes=1), until=NOW, slow=True)


def tally(*, quick: bool = True, apart: bool = True, settled: int = 10, spent: bool = False) -> Tally:
    return Tally("late", "crm", ended=Ended(settled, 10, settled, spent, apart=apart, quick=quick))


def after_chunks(status: TargetStatus, *tallies: Tally, now: datetime = NOW) -> TargetStatus:
    for each in tallies:
        status = next_status(status, each, Count(), now)
    return status


@pytest.mark.parametrize(
    ("attempts", "slow", "found"),
    [(9, 9, False), (10, 4, False), (10, 5, True), (500, 249, False), (500, 250, True), (0, 0, False)],
)
def test_a_target_is_slow_when_half_of_ten_responses_are(attempts: int, slow: int, found: bool) -> None:
    """A target is slow if half of at least ten responses are slow."""
    assert is_slow(Count(attempts, 0, slow)) is found


def test_a_target_that_is_slow_gets_its_deliveries_in_the_slow_lane_and_says_why() -> None:
    """The responses of all pushes within 30 s decide, and the target's status gives the reason."""
    reported = Tally("late", "crm", {int(NOW.timestamp()): Count(1, 0, 1)})

    assert next_status(OK, reported, Count(20, 0, 9), NOW) == OK
    status = next_status(OK, reported, Count(20, 0, 10), NOW)

    assert reported.is_word_against
    assert (status.state, status.slow, status.since, status.until) == ("degraded", True, NOW, NOW)
    assert status.reason == "10 of 20 responses within 30 s took a fifth of the timeout or longer"


@pytest.mark.parametrize(
    ("count", "reason"),
    [(1, "1 request had no response in time"), (4, "4 requests had no response in time")],
)
def test_one_that_does_not_respond_is_apart_at_once(count: int, reason: str) -> None:
    """A target that does not respond is in the slow lane immediately, even an ordered one, which has no breaker."""
    reported = Tally("late", "crm", no_response=count)
    status = next_status(OK, reported, Count(100, 1, 1), NOW)

    assert (status.state, status.slow, status.until, reported.is_word_against) == ("degraded", True, NOW, True)
    assert status.reason == reason
    assert next_status(OK, replace(reported, opens=False), Count(100, 100, 100), NOW) == status


def test_one_that_fails_is_left_alone() -> None:
    """A failing target's breaker opens, whether or not the target was slow before."""
    for status in (OK, SLOW):
        failing = next_status(status, replace(tally(), no_response=10), Count(10, 10, 10), NOW)
        assert (failing.state, failing.slow, failing.until) == ("degraded", False, NOW + timedelta(seconds=30))


def test_five_quick_chunks_in_a_row_heal_it() -> None:
    """Five consecutive quick chunks end the slow lane immediately and without a slow start."""
    four = after_chunks(SLOW, *[tally()] * 4)
    assert (four.state, four.slow, four.good) == ("degraded", True, 4)

    five = after_chunks(four, tally())

    assert (five.state, five.slow, five.until, five.good) == ("ok", False, None, 0)
    assert five.reason == "5 chunks in a row were quick"


@pytest.mark.parametrize("other", [tally(quick=False), tally(settled=4), tally(settled=0)])
def test_a_chunk_that_was_not_quick_begins_the_count_again(other: Tally) -> None:
    """A chunk with slow responses, without responses or less than half settled resets the count of quick chunks."""
    assert after_chunks(SLOW, *[tally()] * 4, other, *[tally()] * 4).good == 4


def test_an_ordered_target_heals_by_quick_chunks_and_nothing_else_of_its_pushes_changes_it() -> None:
    """Only quick chunks change the state of a slow ordered target; unsettled deliveries wait by key."""
    tried_one_by_one = replace(tally(), opens=False)
    unsettled = replace(tally(settled=0, spent=True, apart=False), opens=False)

    assert after_chunks(OK, unsettled) == OK
    assert after_chunks(SLOW, unsettled) == SLOW
    assert after_chunks(SLOW, *[tried_one_by_one] * 4).good == 4
    assert after_chunks(SLOW, *[tried_one_by_one] * 5).state == "ok"


def test_it_is_slow_for_half_a_minute_at_least() -> None:
    """A target stays slow for at least half a minute, so that one that is slow at times does not leave in between."""
    just_now = replace(SLOW, since=NOW - timedelta(seconds=29))

    status = after_chunks(just_now, *[tally()] * 9)

    assert (status.state, status.good) == ("degraded", 9)
    assert after_chunks(status, tally(), now=NOW + timedelta(seconds=1)).state == "ok"


def test_a_push_in_progress_at_the_slow_decision_heals_nothing() -> None:
    """Pushes that were in progress when the target became slow do not count as quick."""
    assert after_chunks(SLOW, *[tally(apart=False)] * 9) == SLOW


def test_one_whose_chunks_do_not_fit_the_budget_stays_slow() -> None:
    """A target whose chunks do not fit the budget stays slow, and its next push may start immediately."""
    status = after_chunks(replace(SLOW, good=4), tally(settled=4, spent=True))

    assert (status.state, status.slow, status.good, status.until) == ("degraded", True, 0, NOW)
    assert status.since == SLOW.since
