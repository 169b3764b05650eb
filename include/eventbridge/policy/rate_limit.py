"""Limits rates with tokens for a target's deliveries, and with a balance of events that an owner may publish."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.policy.breaker import RAMP

#: After a recovery, the rate begins with this many deliveries per second and doubles every 2.5 s, up to 20,000.
_RAMP_START = 5.0
_RAMP_DOUBLING_SECONDS = 2.5
#: The tolerance for sums of fractions of a token, which may end slightly below a whole number.
_DUST = 1e-6

#: A server may accept this many seconds' worth of an owner's rate before it requests the next grant.
AHEAD_SECONDS = 0.2


@dataclass(frozen=True)
class Bucket:
    """The tokens in a target's bucket at a time."""

    count: float
    at: datetime


@dataclass(frozen=True)
class Lease:
    """Tokens that one push may use within a second.

    If none was granted, the next one is available in `wait_seconds`.
    """

    granted: int
    wait_seconds: float
    left: Bucket


def allowed_per_second(rate: float | None, ramp_until: datetime | None, now: datetime) -> float | None:
    """Return how many deliveries per second a target may get now.

    This is its own rate or, until `ramp_until`, the rising rate after a recovery if that is lower. None means any
    number.
    """
    if ramp_until is None or now >= ramp_until:
        return rate
    elapsed = max(0.0, (RAMP - (ramp_until - now)).total_seconds())
    ramped: float = _RAMP_START * 2.0 ** (elapsed / _RAMP_DOUBLING_SECONDS)
    return ramped if rate is None else min(rate, ramped)


def tokens_within(rate: float | None, ramp_until: datetime | None, now: datetime, seconds: float) -> float | None:
    """Return how many deliveries a target may get within `seconds` from now; None for any number.

    A rising rate that ends within this time sets no bound, because towards its end it allows as much as a push can
    send.
    """
    tokens = None if rate is None else rate * seconds
    if ramp_until is None or ramp_until < now + timedelta(seconds=seconds):
        return tokens
    begins, ends = (allowed_per_second(None, ramp_until, now + timedelta(seconds=after)) for after in (0.0, seconds))
    if begins is None or ends is None:
        return tokens
    ramped = (ends - begins) * _RAMP_DOUBLING_SECONDS / math.log(2)
    return ramped if tokens is None else min(tokens, ramped)


def lease(tokens: Bucket | None, rate: float, wanted: int, now: datetime) -> Lease:
    """Return a lease of up to `wanted` tokens from a bucket (None if it was never used) that fills at `rate` a second.

    The bucket holds the tokens of one second, at least one, plus up to one second's worth, at most one, that accrues
    until a push asks. Without the latter, a push that asks 0.25 s late each time would get 48 instead of 60 a minute.
    In any t seconds, at most `rate * (t + 1) + 1` tokens are leased. If the clock goes back, no tokens accrue.
    """
    begins = max(1.0, rate)
    capacity = begins + min(1.0, rate)
    if tokens is None:
        count = begins
    else:
        count = min(capacity, tokens.count + max(0.0, (now - tokens.at).total_seconds()) * rate)
    granted = min(wanted, math.floor(count + _DUST))
    left = max(0.0, count - granted)
    at = now if tokens is None else max(now, tokens.at)
    return Lease(granted, 0.0 if granted else (1.0 - left) / rate + (at - now).total_seconds(), Bucket(left, at))


def second_of(rate: float) -> int:
    """Return how many tokens to lease at a time: one second's worth, at least one."""
    return max(1, math.ceil(rate - _DUST))


@dataclass(frozen=True)
class Balance:
    """The number of events that an owner may publish immediately, and the time when it was computed.

    It is negative if a call took more.
    """

    events: float
    at: datetime


@dataclass(frozen=True)
class QuotaResult:
    """The result for a call: `wait_seconds` is 0 if the call is accepted, else how long to wait before the next; `left`
    is the balance.

    `events` is the number of events granted: those of the call, and those that the server may accept afterwards without
    another grant.
    """

    wait_seconds: float
    events: int
    left: Balance


def grant(before: Balance | None, per_second: float, events: int, now: datetime) -> QuotaResult:
    """Return whether a call of `events` events may be accepted; `before` is None if the owner has not published yet.

    While the balance is positive, however small, a call is accepted in full, so that no call is refused forever because
    of its size. In any t seconds at most `per_second * (t + 1)` events and one more call are granted; each server
    accepts at most `per_second * AHEAD_SECONDS` more. If the clock goes back, nothing is added.
    """
    most = max(1.0, per_second)
    passed = 0.0 if before is None else max(0.0, (now - before.at).total_seconds())
    balance = most if before is None else min(most, before.events + passed * per_second)
    at = now if before is None else max(now, before.at)
    if balance <= 0:
        return QuotaResult((1.0 - balance) / per_second, 0, Balance(balance, at))
    ahead = math.floor(max(0.0, min(balance - events, per_second * AHEAD_SECONDS)))
    return QuotaResult(0.0, events + ahead, Balance(balance - events - ahead, at))
