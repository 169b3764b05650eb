"""Which responses of a target are slow, and until when a push may send so that a response can still come. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

#: A response is slow if it took this share of the target's time-out, and this many seconds at least.
SLOW_SHARE_OF_TIMEOUT = 0.2
LEAST_SLOW_SECONDS = 1.0
#: A response may take this many times as long as the longest one before it, and this many seconds at least.
_LONGER = 1.25
_LEAST_SPARE_SECONDS = 0.25


def slow_after(timeout_seconds: float, budget_seconds: float) -> float:
    """Return from how many seconds on a response is slow, or a request that has none counts as timed out.

    A request is waited for until its time-out or until the push budget ends, whichever comes first; the shorter of the
    two is the time that counts.
    """
    return max(LEAST_SLOW_SECONDS, SLOW_SHARE_OF_TIMEOUT * min(timeout_seconds, budget_seconds))


def last_start(until: datetime, budget: timedelta, longest_seconds: float) -> datetime:
    """Return when a push that listens until `until` starts its last request.

    A request that has no response at `until` is recorded as sent and sent again after its time-out, so a push sends
    nothing whose response would come later. It takes as long as the longest response of this push, `longest_seconds`,
    and a quarter more. Half of the budget remains for sending in any case.
    """
    spare = timedelta(seconds=max(_LEAST_SPARE_SECONDS, _LONGER * longest_seconds))
    return until - min(spare, budget / 2)
