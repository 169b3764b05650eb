"""The pause that a target asks for by 429, as kept by one push's run of the target."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from eventbridge.delivery.breaker import RunBreaker
from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.rows import OutcomeRows, unsent_row
from eventbridge.delivery.token_lease import Pace
from eventbridge.policy.response_to_outcome import while_paused
from eventbridge.rules.model import RetryPolicy


def note_pause(until: datetime | None, pace: Pace, breaker: RunBreaker, now: datetime) -> bool:
    """Pause until the time that a response asks for, if it does; return whether the target had asked already.

    Then the response does not count against the target again: it asked once, for all requests in flight.
    """
    if until is None:
        return False
    known = pace.pause.at(now) is not None
    pace.pause.ask(until)
    breaker.record_pause(until)
    return known


def defer_paused(
    items: Iterable[Item], until: datetime, now: datetime, policy: RetryPolicy, rows: OutcomeRows
) -> list[Item]:
    """Defer until `until` the `items` that this push has not tried, and return the others; dead-letter expired ones.

    A row of schema OUTCOME for each, which is not an attempt, goes to `rows`.
    """
    tried: list[Item] = []
    untried: list[Item] = []
    for item in items:
        (untried if item.due_at is None else tried).append(item)
    rows.put_all(
        unsent_row(item, while_paused(policy, item.arrived_at, item.on_hold_seconds, until, now), now)
        for item in untried
    )
    return tried
