"""Decides which responses are slow, and until when a push may send and still get a response. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

#: A response is slow if it took this share of the target's time-out, and at least this many seconds.
SLOW_SHARE_OF_TIMEOUT = 0.2
LEAST_SLOW_SECONDS = 1.0
#: A response is expected within this multiple of the longest one before it, and at least this many seconds.
_LONGER = 1.25
_LEAST_SPARE_SECONDS = 0.25


def slow_after(timeout_seconds: float, budget_seconds: float) -> float:
    """Return the seconds after which a response is slow, or a request without one counts as timed out.

    A push waits for a response until the time-out or the end of its budget, whichever comes first; the shorter of the
    two counts.
    """
    return max(LEAST_SLOW_SECONDS, SLOW_SHARE_OF_TIMEOUT * min(timeout_seconds, budget_seconds))


def last_start(until: datetime, budget: timedelta, longest_seconds: float) -> datetime:
    """Return when a push that listens until `until` starts its last request.

    A request without a response at `until` is recorded as sent and sent again after its time-out, so a push sends
    nothing whose response would come later. The expected time is that of the longest response of this push,
    `longest_seconds`, and a quarter more. At least half of the budget always remains for sending.
    """
    spare = timedelta(seconds=max(_LEAST_SPARE_SECONDS, _LONGER * longest_seconds))
    return until - min(spare, budget / 2)
