"""The pace of one run: tokens leased from the ledger, a second's at a time, shared with all pushes of its target.

And the pause that its target asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from eventbridge.breaker import RAMP
from eventbridge.rate import Lease, per_second, second_of

#: How long leased tokens count: what a slow target did not use by then would be a burst later.
_LEASE = timedelta(seconds=1)


class Pause:
    """Until when a target wants to be sent nothing; one for all its runs in a push, and any thread may use it."""

    def __init__(self) -> None:
        self._until: datetime | None = None

    def ask(self, until: datetime) -> None:
        """Ask for it until a time; the latest counts."""
        self._until = max(until, self._until or until)

    def at(self, now: datetime) -> datetime | None:
        """Return until when it lasts; None: there is none (any more)."""
        until = self._until
        if until is None or now < until:
            return until
        self._until = None  # one that is asked for at this very moment is told by the ledger in a second
        return None

    @property
    def last(self) -> datetime | None:
        """Until when it lasts, or lasted until a moment ago."""
        return self._until


class Pace:
    """Says whether one more delivery may be sent now; belongs to the run's thread, but for its `pause`.

    `rate` None, no ramp and no pause: always. `lease` takes (deliveries a second, wanted) to the ledger.
    `beside` is a further one whose tokens it takes too: what a redrive allows, say.
    """

    def __init__(
        self, lease: Callable[[float, int], Lease], rate: float | None, ramp_until: datetime | None = None
    ) -> None:
        self._lease = lease
        self._rate = rate
        self._ramp_until = ramp_until
        self._held = 0
        self._held_until: datetime | None = None
        self._token_at: datetime | None = None  # when there may be tokens again; None: perhaps now
        self._refused_at: datetime | None = None
        self.pause = Pause()
        self.beside: Pace | None = None

    @property
    def free(self) -> bool:
        """Whether `take` says yes at any time, and counts nothing."""
        unbound = self._rate is None and self._ramp_until is None and self.beside is None
        return unbound and self.pause.last is None

    @property
    def next_at(self) -> datetime | None:
        """When something may be sent again; None: perhaps now."""
        beside = self.beside.next_at if self.beside is not None else None
        return max(filter(None, (self._token_at, self.pause.last, beside)), default=None)

    def ramp(self, now: datetime) -> None:
        """Begin a ramp: the target has just healed."""
        self._ramp_until = now + RAMP

    def open(self, now: datetime) -> bool:
        """Return whether it is worth asking for a token."""
        if self.pause.at(now) is not None or (self.beside is not None and not self.beside.open(now)):
            return False
        return self._token_at is None or now >= self._token_at or per_second(self._rate, self._ramp_until, now) is None

    def take(self, now: datetime, wanted: int) -> bool:
        """Take one token of `wanted`, leasing some if there is none; False: not before `next_at`."""
        limits = [self] if self.beside is None else [self, self.beside]
        if self.pause.at(now) is not None or not all(limit.holds(now, wanted) for limit in limits):
            self._refused_at = now
            return False
        for limit in limits:
            limit.spend()
        return True

    def has_bound(self, now: datetime) -> bool:
        """Return whether it refused a token, and there was none again until a second ago at most."""
        return self._refused_at is not None and now - max(self._refused_at, self.next_at or self._refused_at) < _LEASE

    def holds(self, now: datetime, wanted: int) -> bool:
        """Return whether it has a token, of `wanted`, or needs none; leases some if it has none."""
        rate = per_second(self._rate, self._ramp_until, now)
        if rate is None:
            return True
        if self._held_until is not None and now >= self._held_until:
            self._held = 0
        if not self._held:
            if self._token_at is not None and now < self._token_at:
                return False
            found = self._lease(rate, min(wanted, second_of(rate)))
            self._held, self._held_until = found.granted, now + _LEASE
            self._token_at = None if found.granted else now + timedelta(seconds=found.wait_seconds)
        return self._held > 0

    def spend(self) -> None:
        """Use the token that it `holds`."""
        self._held = max(0, self._held - 1)
