"""Limits the events a second that an owner may publish: a balance that fills and that a call may overdraw. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

#: For how long, at its rate, a server may count locally before it requests the next grant.
AHEAD_SECONDS = 0.2


@dataclass(frozen=True)
class Balance:
    """How many events an owner may publish at once, at a time; negative: a call took more than the balance held."""

    events: float
    at: datetime


@dataclass(frozen=True)
class Grant:
    """The result for a call: `wait_seconds` is 0 if it may publish, else the time until one may; the balance after it.

    `events` are those of the call, and those that the server may accept afterwards without another grant.
    """

    wait_seconds: float
    events: int
    left: Balance


def grant(before: Balance | None, per_second: float, events: int, now: datetime) -> Grant:
    """Return whether a call of `events` events may be accepted; `before` None: the owner has not published yet.

    A call is accepted as a whole while the balance is positive, however small, so that no call is too large for ever.
    In any t seconds at most `per_second * (t + 1)` events and one more call are granted; servers accept at most
    `per_second * AHEAD_SECONDS` more each. A clock that goes back fills nothing.
    """
    most = max(1.0, per_second)
    passed = 0.0 if before is None else max(0.0, (now - before.at).total_seconds())
    held = most if before is None else min(most, before.events + passed * per_second)
    at = now if before is None else max(now, before.at)
    if held <= 0:
        return Grant((1.0 - held) / per_second, 0, Balance(held, at))
    ahead = math.floor(max(0.0, min(held - events, per_second * AHEAD_SECONDS)))
    return Grant(0.0, events + ahead, Balance(held - events - ahead, at))
