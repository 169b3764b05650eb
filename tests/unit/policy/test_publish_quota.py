"""A quota limits how many events per second an owner may publish."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.policy.rate_limit import AHEAD_SECONDS, Balance, grant

START = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """Return the time `seconds` after the start."""
    return START + timedelta(seconds=seconds)


def test_a_call_is_taken_whole_while_there_is_a_balance() -> None:
    """A call that is larger than the rate is accepted immediately, and the next one waits until its debt is paid."""
    first = grant(None, 10.0, 25, START)
    refused = grant(first.left, 10.0, 1, after(1))
    again = grant(refused.left, 10.0, 1, after(1 + refused.wait_seconds))

    assert (first.wait_seconds, first.events, first.left) == (0.0, 25, Balance(-15.0, START))
    assert (refused.wait_seconds, refused.events, refused.left.events) == (0.6, 0, -5.0)
    assert again.wait_seconds == 0.0


def test_a_server_is_granted_some_ahead() -> None:
    """A server is granted the call's own events and in advance what the rate gives in a fifth of a second."""
    much = grant(None, 100.0, 3, START)
    little = grant(Balance(5.0, START), 100.0, 3, START)

    assert (much.events, much.left.events) == (3 + 20, 77.0)
    assert (little.events, little.left.events) == (5, 0.0)


@pytest.mark.parametrize("servers", [1, 3])
def test_no_more_than_the_rate_gets_in(servers: int) -> None:
    """In any time at most the rate plus one second, one call, and each server's advance are accepted.

    A clock that goes back adds nothing to the balance.
    """
    draw = random.Random(7)
    rate = 20.0
    balance: Balance | None = None
    now, newest, taken, largest = 0.0, 0.0, 0, 0
    ahead = [0] * servers
    for _ in range(5_000):
        now += draw.choice((-0.1, 0.0, 0.01, 0.3))
        newest = max(now, newest)
        server, events = draw.randrange(servers), draw.randint(1, 40)
        missing = events - ahead[server]
        if missing > 0:
            asked = grant(balance, rate, missing, after(now))
            balance = asked.left
            if asked.wait_seconds:
                continue
            ahead[server] += asked.events
        ahead[server] -= events
        taken, largest = taken + events, max(largest, events)
        assert taken <= rate * (newest + 1) + largest + servers * AHEAD_SECONDS * rate
    assert taken > 0.9 * rate * newest
