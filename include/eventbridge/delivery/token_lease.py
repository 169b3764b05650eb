"""The pace of one run: rate tokens, leased from the ledger for a second and shared with all pushes, and the target's
pause.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from eventbridge.policy.breaker import RAMP
from eventbridge.policy.token_bucket import Lease, per_second, second_of

#: How long leased tokens are valid: unused tokens of a slow target would cause a burst later.
_LEASE = timedelta(seconds=1)


class Pause:
    """The time until which a target wants no requests; shared by all its runs in a push, and thread-safe."""

    def __init__(self) -> None:
        self._until: datetime | None = None

    def ask(self, until: datetime) -> None:
        """Set the pause to last until `until`, unless it lasts longer already."""
        self._until = max(until, self._until or until)

    def at(self, now: datetime) -> datetime | None:
        """Return when the pause ends; None if there is none (any more)."""
        until = self._until
        if until is None or now < until:
            return until
        self._until = None  # a pause set at this very moment comes back from the ledger within a second
        return None

    @property
    def last(self) -> datetime | None:
        """When the pause ends, or ended a moment ago."""
        return self._until


class Pace:
    """Decides whether one more delivery may be sent now; used by the run's thread only, except for `pause`.

    Without a rate, ramp or pause, always. `lease` takes (deliveries a second, wanted tokens) from the ledger.
    `redrive_pace` is a further pace whose tokens are needed too: that of a redrive, for example.
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
        self._short = 0  # it was asked for so many tokens, and has none
        self.pause = Pause()
        #: True: it leases tokens in `fetch` and not in `take`, because the caller cannot wait for the ledger.
        self.defers = False
        self.redrive_pace: Pace | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether `take` always returns True and counts nothing."""
        unbound = self._rate is None and self._ramp_until is None and self.redrive_pace is None
        return unbound and self.pause.last is None

    @property
    def next_at(self) -> datetime | None:
        """When something may be sent again; None: perhaps now."""
        redrive_pace = self.redrive_pace.next_at if self.redrive_pace is not None else None
        return max(filter(None, (self._token_at, self.pause.last, redrive_pace)), default=None)

    @property
    def is_short(self) -> bool:
        """Whether `fetch` must be called to know whether there is a token."""
        return any(limit._short for limit in self._limits)

    @property
    def _limits(self) -> list[Pace]:
        return [self] if self.redrive_pace is None else [self, self.redrive_pace]

    def fetch(self, now: datetime) -> None:
        """Lease the tokens that `take` found missing."""
        for limit in self._limits:
            if limit._short:
                limit._fetch(now)

    def set_rate(self, rate: float | None) -> None:
        """Change the rate, because an operator did; any thread may call it."""
        if rate != self._rate:
            self._rate, self._token_at = rate, None

    def ramp(self, now: datetime) -> None:
        """Begin a ramp: the target has just recovered."""
        self._ramp_until = now + RAMP

    def may_ask(self, now: datetime) -> bool:
        """Return whether there may be a token now."""
        if self.pause.at(now) is not None or (self.redrive_pace is not None and not self.redrive_pace.may_ask(now)):
            return False
        return self._token_at is None or now >= self._token_at or per_second(self._rate, self._ramp_until, now) is None

    def take(self, now: datetime, wanted: int) -> bool:
        """Take one token of `wanted`, leasing some if there is none; False: not before `next_at`."""
        limits = self._limits
        if self.pause.at(now) is not None or not all(limit._has_token(now, wanted, self.defers) for limit in limits):
            self._refused_at = self._refused_at if self.is_short else now
            return False
        for limit in limits:
            limit._spend()
        return True

    def has_limited(self, now: datetime) -> bool:
        """Return whether it refused a token within the last second, or still has none."""
        return self._refused_at is not None and now - max(self._refused_at, self.next_at or self._refused_at) < _LEASE

    def _has_token(self, now: datetime, wanted: int, defers: bool) -> bool:
        """Return whether it has a token or needs none; leases some if it has none, unless it defers."""
        if per_second(self._rate, self._ramp_until, now) is None:
            return True
        if self._held_until is not None and now >= self._held_until:
            self._held = 0
        if not self._held:
            if self._token_at is not None and now < self._token_at:
                return False
            self._short = wanted
            if not defers:
                self._fetch(now)
        return self._held > 0

    def _fetch(self, now: datetime) -> None:
        rate = per_second(self._rate, self._ramp_until, now)
        wanted, self._short = self._short, 0
        if rate is None:
            return
        found = self._lease(rate, min(wanted, second_of(rate)))
        self._held, self._held_until = found.granted, now + _LEASE
        self._token_at = None if found.granted else now + timedelta(seconds=found.wait_seconds)

    def _spend(self) -> None:
        """Use one token."""
        self._held = max(0, self._held - 1)
