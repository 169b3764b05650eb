"""How many events a second an owner may publish: a balance that fills, and that a call may overdraw once. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

#: For how long, at its rate, one server may count by itself before it asks again.
AHEAD_SECONDS = 0.2


@dataclass(frozen=True)
class Balance:
    """What an owner may publish at once, at a time; below nothing: a call took more than there was."""

    events: float
    at: datetime


@dataclass(frozen=True)
class Grant:
    """Whether a call may publish: `wait_seconds` 0 if it may, else when one may again; and the balance after it.

    `events` are those of the call, and those that the server may let in afterwards without asking.
    """

    wait_seconds: float
    events: int
    left: Balance


def grant(before: Balance | None, per_second: float, events: int, now: datetime) -> Grant:
    """Return whether a call of so many events may be taken; before None: the owner has not published yet.

    A call is taken whole while there is a balance, however small, so that none is too large for ever. What is granted
    is in any t seconds at most `per_second * (t + 1)` events, and one call more; what servers let in is at most
    `per_second * AHEAD_SECONDS` more for each. A clock that goes back fills nothing.
    """
    most = max(1.0, per_second)
    passed = 0.0 if before is None else max(0.0, (now - before.at).total_seconds())
    held = most if before is None else min(most, before.events + passed * per_second)
    at = now if before is None else max(now, before.at)
    if held <= 0:
        return Grant((1.0 - held) / per_second, 0, Balance(held, at))
    ahead = math.floor(max(0.0, min(held - events, per_second * AHEAD_SECONDS)))
    return Grant(0.0, events + ahead, Balance(held - events - ahead, at))
