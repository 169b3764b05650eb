"""How many events a second an owner may publish: a balance that fills, and that a call may overdraw once. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Balance:
    """What an owner may publish at once, at a time in seconds; below nothing: a call took more than there was."""

    events: float
    at: float


@dataclass(frozen=True)
class Asked:
    """Whether a call may publish: `wait_seconds` 0 if it may, else when one may again; and the balance after it."""

    wait_seconds: float
    left: Balance


def ask(before: Balance | None, per_second: float, events: int, now: float) -> Asked:
    """Return whether a call of so many events may be taken; before None: the owner has not published yet.

    A call is taken whole while there is a balance, however small, so that none is too large for ever: in any t seconds
    at most `per_second * (t + 1)` events, and one call more. A clock that goes back fills nothing.
    """
    most = max(1.0, per_second)
    held = most if before is None else min(most, before.events + max(0.0, now - before.at) * per_second)
    at = now if before is None else max(now, before.at)
    if held > 0:
        return Asked(0.0, Balance(held - events, at))
    return Asked((1.0 - held) / per_second, Balance(held, at))
