"""How many events a second an owner may publish."""

from __future__ import annotations

import random

from eventbridge.decision.publish_quota import Balance, ask


def test_a_call_is_taken_whole_while_there_is_a_balance() -> None:
    """One that is larger than the rate is taken at once, and the next one waits until that is paid."""
    first = ask(None, 10.0, 25, now=100.0)
    refused = ask(first.left, 10.0, 1, now=101.0)
    again = ask(refused.left, 10.0, 1, now=101.0 + refused.wait_seconds)

    assert (first.wait_seconds, first.left) == (0.0, Balance(-15.0, 100.0))
    assert (refused.wait_seconds, refused.left.events) == (0.6, -5.0)
    assert again.wait_seconds == 0.0


def test_no_more_than_the_rate_gets_in() -> None:
    """In any time at most the rate for it and a second more, and one call; a clock that goes back fills nothing."""
    draw = random.Random(7)
    balance, now, taken, largest = None, 0.0, 0, 0
    for _ in range(5_000):
        now += draw.choice((-0.5, 0.0, 0.01, 0.3))
        events = draw.randint(1, 40)
        asked = ask(balance, 20.0, events, now)
        balance = asked.left
        if asked.wait_seconds == 0.0:
            taken, largest = taken + events, max(largest, events)
        assert taken <= 20.0 * (balance.at + 1) + largest
    assert taken > 0.9 * 20.0 * balance.at
