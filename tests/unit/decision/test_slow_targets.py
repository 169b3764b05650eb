"""When a target is delivered apart from the others because batches wait for it, and when it is with them again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.decision.breaker import Count, Ended, Tally, after
from eventbridge.decision.head_of_line import Stay, is_left_behind, is_silent
from eventbridge.model.target_state import TargetStatus

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OK = TargetStatus("late", "crm", "ok", "", NOW - timedelta(hours=1))
SLOW = replace(OK, state="degraded", reason="batches waited", since=NOW - timedelta(minutes=1), until=NOW, slow=True)
QUICK = Stay(0.1, 0.1, 0.05)


def tally(*, stay: Stay | None = QUICK, apart: bool = True, settled: int = 10, spent: bool = False) -> Tally:
    return Tally("late", "crm", ended=Ended(settled, 10, settled, spent, stay, apart))


def after_chunks(status: TargetStatus, *tallies: Tally, now: datetime = NOW) -> TargetStatus:
    for each in tallies:
        status = after(status, each, Count(), now)
    return status


def test_batches_may_wait_for_it_for_five_percent_of_the_time() -> None:
    """1.5 s of 30, from whatever pushes; then it gets its deliveries in the slow lane, and says why."""
    waited = tally(stay=Stay(1.0, 1.0, 0.6), apart=False)

    assert after(OK, waited, Count(10, 0, 1499), NOW) == OK
    status = after(OK, waited, Count(10, 0, 1500), NOW)

    assert (status.state, status.slow, status.since, status.until) == ("degraded", True, NOW, NOW)
    assert status.reason == "batches waited 1.5 s for it alone within 30 s; its answers took 0.6 s at the median"


def test_one_that_fails_is_left_alone() -> None:
    """That is worse than slow, before and after it was found to be slow."""
    for status in (OK, SLOW):
        failing = after(status, tally(), Count(10, 10, 9000), NOW)
        assert (failing.state, failing.slow, failing.until) == ("degraded", False, NOW + timedelta(seconds=30))


def test_one_that_does_not_answer_is_apart_at_once() -> None:
    """The next batch does not find it out again; an ordered one is not judged by that."""
    left = replace(tally(), ended=Ended(0, 10, 0, False, left_behind=4))
    status = after(OK, left, Count(), NOW)

    assert (status.state, status.slow, status.until, left.is_word_against) == ("degraded", True, NOW, True)
    assert status.reason == "no answer to 4 requests while the others of its batch were done"
    assert after(OK, replace(left, opens=False), Count(), NOW) == OK


def test_a_target_is_silent_after_a_second_and_four_usual_answers() -> None:
    """One of which nobody knows how long it takes is waited for; so is one that is slow."""
    assert [is_silent(seconds, 0.05) for seconds in (0.9, 1.0)] == [False, True]
    assert [is_silent(seconds, 2.0) for seconds in (7.9, 8.0)] == [False, True]
    assert not is_silent(60.0, None)


def test_a_silent_target_is_waited_for_a_second_or_as_long_as_the_others_took() -> None:
    """Once those are done."""
    assert [is_left_behind(beyond, 0.2) for beyond in (0.9, 1.0)] == [False, True]
    assert [is_left_behind(beyond, 3.0) for beyond in (2.9, 3.0)] == [False, True]


def test_only_what_others_waited_for_counts() -> None:
    """Not in the slow lane, and not of an ordered target, whose deliveries wait by key."""
    waited = tally(stay=Stay(3.0, 3.0, 2.0), apart=False)

    assert (waited.hold_up_ms, waited.is_word_against) == (3000, True)
    for other in (tally(stay=Stay(3.0, 3.0, 2.0)), tally(stay=None, apart=False), replace(waited, opens=False)):
        assert (other.hold_up_ms, other.is_word_against) == (0, False)


def test_five_quick_chunks_in_a_row_heal_it() -> None:
    """It is then with the others again, at once and at any rate: it was sent to all the time."""
    four = after_chunks(SLOW, *[tally()] * 4)
    assert (four.state, four.slow, four.good) == ("degraded", True, 4)

    five = after_chunks(four, tally())

    assert (five.state, five.slow, five.until, five.good) == ("ok", False, None, 0)
    assert five.reason == "5 chunks in a row were quick"


@pytest.mark.parametrize(
    "other",
    [
        tally(stay=Stay(0.0, 0.1, 2.0)),
        tally(stay=Stay(0.0, 2.0, 0.01)),
        tally(settled=4),
        tally(settled=0),
    ],
)
def test_a_chunk_that_was_not_quick_begins_the_count_anew(other: Tally) -> None:
    """Slow answers, a long wait for the last of them, or less than half settled."""
    assert after_chunks(SLOW, *[tally()] * 4, other, *[tally()] * 4).good == 4


def test_it_is_slow_for_half_a_minute_at_least() -> None:
    """Or one that is slow by turns would be with the others again between two."""
    just_now = replace(SLOW, since=NOW - timedelta(seconds=29))

    status = after_chunks(just_now, *[tally()] * 9)

    assert (status.state, status.good) == ("degraded", 9)
    assert after_chunks(status, tally(), now=NOW + timedelta(seconds=1)).state == "ok"


def test_what_was_under_way_when_it_was_found_to_be_slow_heals_nothing() -> None:
    """The other pushes of its batch end later, and may have been quicker."""
    assert after_chunks(SLOW, *[tally(apart=False)] * 9) == SLOW


def test_one_whose_chunks_do_not_fit_the_budget_stays_slow() -> None:
    """It delivers at its own speed, and may go on at once."""
    status = after_chunks(replace(SLOW, good=4), tally(settled=4, spent=True))

    assert (status.state, status.slow, status.good, status.until) == ("degraded", True, 0, NOW)
    assert status.since == SLOW.since
