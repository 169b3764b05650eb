"""A delivery has a deadline, after which it is dead-lettered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eventbridge.model.outcome import DELIVERED, DeadLettered, RetryAt
from eventbridge.policy.delivery_windows import (
    dead_letter_if_late,
    deadline_of,
    late_reported_before,
    missed,
    missed_before,
)

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
DEADLINE = NOON + timedelta(minutes=10)


def test_a_target_without_the_field_has_all_time() -> None:
    """A target without deliver_within has no deadline, however old the event is."""
    assert deadline_of(NOON, None) is None
    assert missed(None, NOON + timedelta(days=999)) is None
    late = RetryAt(NOON + timedelta(days=999), "HTTP 503")
    assert dead_letter_if_late(late, None) is late


def test_at_its_deadline_it_is_too_late() -> None:
    """A delivery may be sent until one microsecond before its deadline."""
    assert deadline_of(NOON, 600.0) == DEADLINE
    assert missed(DEADLINE, DEADLINE - timedelta(microseconds=1)) is None
    end = missed(DEADLINE, DEADLINE)
    assert end is not None
    assert end.reason == "deadline_missed"
    assert "2026-11-24T12:10:00.000+00:00" in end.detail


def test_a_retry_beyond_the_deadline_ends_the_delivery_at_once() -> None:
    """A retry after the deadline becomes a dead letter whose detail has the response; other outcomes stay the same."""
    soon = RetryAt(DEADLINE - timedelta(microseconds=1), "HTTP 503")
    assert dead_letter_if_late(soon, DEADLINE) is soon
    assert dead_letter_if_late(DELIVERED, DEADLINE) is DELIVERED
    end = dead_letter_if_late(RetryAt(DEADLINE, "HTTP 503"), DEADLINE)
    assert isinstance(end, DeadLettered)
    assert end.reason == "deadline_missed"
    assert end.detail.startswith("HTTP 503, and its deadline 2026-11-24T12:10")


def test_a_deadline_warning_comes_after_four_fifths_of_the_time() -> None:
    """With 10 minutes to the deadline, the warning comes 8 minutes after the event was published."""
    assert late_reported_before(600.0, NOON) == NOON - timedelta(minutes=8)
    assert missed_before(600.0, NOON) == NOON - timedelta(minutes=10)
