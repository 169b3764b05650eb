"""The breaker of one run: when it limits the run, when it trips, and what it reports to the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eventbridge.delivery.admission import RunBreaker
from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import Count

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = int(NOW.timestamp())
OPENED = TargetStatus("late", "crm", "degraded", "10 of 10", NOW)


def name(number: int) -> bytes:
    return number.to_bytes(16)


def test_ten_failures_trip_it() -> None:
    """Nothing more is sent by this push, before the ledger knows of anything."""
    breaker = RunBreaker("late", "crm")
    for number in range(10):
        assert breaker.capacity(NOW) is None
        breaker.record_response(name(number), NOW, failed=True)

    assert breaker.tripped
    assert breaker.capacity(NOW) == 0


def test_failures_that_are_tried_again_hold_it_back_and_do_not_trip_it() -> None:
    """A target that takes everything at the third try fails two thirds of its attempts: that is no reason to open."""
    breaker = RunBreaker("late", "crm")
    for number in range(12):
        breaker.record_response(name(number), NOW, failed=True, again=True)
    assert breaker.capacity(NOW) == 0, "nothing new while it looks bad"
    assert breaker.take() is None, "nothing is reported before it is known"
    for number in range(12):
        breaker.record_response(name(number), NOW, failed=True, again=True)
        breaker.record_response(name(number), NOW, failed=False)

    assert not breaker.tripped
    assert breaker.capacity(NOW) is None
    notified = breaker.take()
    assert notified is not None
    assert notified.counts == {SECOND: Count(36, 24)}


def test_a_target_that_was_good_so_far_may_have_many_deliveries_that_are_tried_again() -> None:
    """It is not limited to a few at a time, as an unknown target is, nor unlimited."""
    breaker = RunBreaker("late", "crm")
    for number in range(10):
        breaker.record_response(name(number), NOW, failed=False)
    for number in range(10, 110):
        breaker.record_response(name(number), NOW, failed=True, again=True)
    some = breaker.capacity(NOW)
    for number in range(110, 310):
        breaker.record_response(name(number), NOW, failed=True, again=True)

    assert (some, breaker.capacity(NOW)) == (100, 0)


def test_failures_that_are_not_tried_again_in_the_end_count() -> None:
    """A run that is over reports all its attempts."""
    breaker = RunBreaker("late", "crm")
    for number in range(12):
        breaker.record_response(name(number), NOW, failed=True, again=True)

    breaker.end_run(NOW)

    notified = breaker.take()
    assert notified is not None
    assert notified.total == Count(12, 12)


def test_a_run_does_not_wait_for_a_retry_that_would_be_too_old() -> None:
    """It counts as it stands; a delivery that was never to be retried adds nothing."""
    breaker = RunBreaker("late", "crm")
    for number in range(9):
        breaker.record_response(name(number), NOW, failed=False)
    for number in range(300):
        breaker.record_response(name(100 + number), NOW, failed=True, again=True)
    assert breaker.capacity(NOW) == 0
    for number in range(400):
        breaker.record_abandoned(name(100 + number), NOW)

    assert breaker.capacity(NOW) is None
    notified = breaker.take()
    assert notified is not None
    assert notified.counts == {SECOND: Count(309, 300)}


def test_everything_is_reported_once() -> None:
    """A reported count is not reported again; without news there is nothing to report."""
    breaker = RunBreaker("late", "crm")
    breaker.record_response(name(1), NOW, failed=False)
    first = breaker.take()
    assert breaker.take() is None
    breaker.record_response(name(2), NOW, failed=True)
    breaker.record_response(name(3), NOW + timedelta(seconds=1), failed=False)
    second = breaker.take()

    assert first is not None
    assert second is not None
    assert first.counts == {SECOND: Count(1, 0)}
    assert second.counts == {SECOND: Count(1, 1), SECOND + 1: Count(1, 0)}


def test_probes_go_one_at_a_time_until_five_are_good() -> None:
    """Then anything may be sent; with two good ones from before, three are enough."""
    breaker = RunBreaker("late", "crm", probed=TargetStatus("late", "crm", "half-open", "", NOW, good=2))
    for number in range(3):
        assert breaker.capacity(NOW) == 1
        breaker.record_response(name(number), NOW, failed=False)

    assert breaker.capacity(NOW) is None
    notified = breaker.take()
    assert notified is not None
    assert notified.probes == (True, True, True)


def test_a_probe_is_one_delivery_with_the_retries_of_its_push() -> None:
    """Refused and then taken, it is good; nothing else is sent in between."""
    breaker = RunBreaker("late", "crm", probed=OPENED)
    breaker.record_response(name(1), NOW, failed=True, again=True)
    assert breaker.capacity(NOW) == 0
    breaker.record_response(name(1), NOW, failed=False)

    notified = breaker.take()
    assert notified is not None
    assert (notified.probes, notified.total) == ((True,), Count(2, 1))
    assert breaker.capacity(NOW) == 1


def test_a_failed_probe_trips_it() -> None:
    """One is enough."""
    breaker = RunBreaker("late", "crm", probed=OPENED)
    breaker.record_response(name(1), NOW, failed=True)

    assert breaker.tripped
    notified = breaker.take()
    assert notified is not None
    assert notified.probes == (False,)


def test_failures_among_the_probes_are_forgotten_once_the_breaker_is_closed() -> None:
    """Ten attempts that failed before the fifth good probe do not trip it with the next failure."""
    breaker = RunBreaker("late", "crm", probed=OPENED)
    for number in range(5):
        for _ in range(4):
            breaker.record_response(name(number), NOW, failed=True, again=True)
        breaker.record_response(name(number), NOW, failed=False)

    breaker.record_response(name(9), NOW + timedelta(seconds=1), failed=True)

    assert not breaker.tripped


def test_a_pause_is_reported_once() -> None:
    """With the next tally, even if there is nothing else to report; a longer pause is reported again."""
    breaker = RunBreaker("late", "crm")
    breaker.record_pause(NOW + timedelta(seconds=2))
    notified = breaker.take()
    again = breaker.take()
    breaker.record_pause(NOW + timedelta(seconds=4))
    longer = breaker.take()

    assert notified is not None
    assert longer is not None
    assert again is None
    assert (notified.paused_until, longer.paused_until) == (NOW + timedelta(seconds=2), NOW + timedelta(seconds=4))
