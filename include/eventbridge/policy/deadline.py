"""Applies `deliver_within` of a target: until when a delivery may be sent, and its end after that time. Pure.

All wall time counts from when the bus accepted the event, including time on hold, paused or outside the delivery
window. A redrive or replay publishes its events again, so their time counts from its batch.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from eventbridge.model.outcome import DeadLettered, Outcome, RetryAt

#: The reason of a dead letter that was not delivered in time.
DEADLINE_MISSED = "deadline_missed"
#: The share of its time after which a waiting delivery is reported as running late.
REPORTED_AT = 0.8


def deadline_of(published_at: datetime, within_seconds: float | None) -> datetime | None:
    """Return the time from which a delivery is too late to be sent; None: never."""
    return None if within_seconds is None else published_at + timedelta(seconds=within_seconds)


def missed(deadline_at: datetime | None, now: datetime) -> DeadLettered | None:
    """Return the end of a delivery whose time is over at `now`; None: it may be sent, or has no deadline."""
    if deadline_at is None or now < deadline_at:
        return None
    return DeadLettered(DEADLINE_MISSED, f"it was to be delivered by {_text(deadline_at)}")


def in_time(outcome: Outcome, deadline_at: datetime | None) -> Outcome:
    """Return an outcome, or the end of a delivery whose next attempt would come too late.

    It ends at once and not at its deadline: it can no longer succeed, and its owner is notified earlier.
    """
    if deadline_at is None or not isinstance(outcome, RetryAt) or outcome.due_at < deadline_at:
        return outcome
    detail = f"{outcome.reason}, and it was to be delivered by {_text(deadline_at)}, before the next attempt is due"
    return DeadLettered(DEADLINE_MISSED, detail)


def missed_before(within_seconds: float, now: datetime) -> datetime:
    """Return the publish time before which an event's deliveries are too late at `now`."""
    return now - timedelta(seconds=within_seconds)


def late_reported_before(within_seconds: float, now: datetime) -> datetime:
    """Return the publish time before which an event's deliveries must be reported as running late at `now`."""
    return now - timedelta(seconds=within_seconds * REPORTED_AT)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
