"""What `deliver_within` of a target comes to: until when a delivery may be sent, and what becomes of one past it. Pure.

All wall time counts, from when the bus took the event: time on hold, paused or outside the hours counts too.
A redrive or replay publishes its events again, so that their time counts from its batch.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from eventbridge.model.outcome import DeadLettered, Outcome, RetryAt

#: Why a delivery is dead-lettered that was not made in time.
DEADLINE_MISSED = "deadline_missed"
#: After which share of its time a delivery is told of that still waits.
REPORTED_AT = 0.8


def deadline_of(published_at: datetime, within_seconds: float | None) -> datetime | None:
    """Return from when on a delivery is too late to be sent; None: never."""
    return None if within_seconds is None else published_at + timedelta(seconds=within_seconds)


def missed(deadline_at: datetime | None, now: datetime) -> DeadLettered | None:
    """Return the end of a delivery whose time is over at `now`; None: it may be sent, or has all time."""
    if deadline_at is None or now < deadline_at:
        return None
    return DeadLettered(DEADLINE_MISSED, f"it was to be delivered by {_text(deadline_at)}")


def in_time(outcome: Outcome, deadline_at: datetime | None) -> Outcome:
    """Return an outcome, or the end of a delivery whose next attempt would come too late.

    It ends at once and not at its deadline: it cannot succeed any more, and its owner is notified earlier.
    """
    if deadline_at is None or not isinstance(outcome, RetryAt) or outcome.due_at < deadline_at:
        return outcome
    detail = f"{outcome.reason}, and it was to be delivered by {_text(deadline_at)}, before the next attempt is due"
    return DeadLettered(DEADLINE_MISSED, detail)


def missed_before(within_seconds: float, now: datetime) -> datetime:
    """Return the time before which an event was published if its deliveries are too late at `now`."""
    return now - timedelta(seconds=within_seconds)


def late_reported_before(within_seconds: float, now: datetime) -> datetime:
    """Return the time before which an event was published if its deliveries must be reported as late at `now`."""
    return now - timedelta(seconds=within_seconds * REPORTED_AT)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
