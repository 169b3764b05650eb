"""Defers deliveries that may not be sent yet: it is too early for them, or their target's window is closed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.rows import OutcomeRows, unsent_row
from eventbridge.policy.deadline import in_time
from eventbridge.policy.response_to_outcome import too_early
from eventbridge.rules.model import DeliverBetween


def defer_early(
    items: Iterable[Item],
    window: DeliverBetween | None,
    now: datetime,
    rows: OutcomeRows,
) -> list[Item]:
    """Return the deliveries of a target that may be sent now; rows of schema OUTCOME for the others go to `rows`.

    Such a row is not an attempt: it is a retry_scheduled with the time from which the delivery may be sent, or a
    dead_lettered if that is after its deadline.
    """
    ready, early = [], []
    for item in items:
        due = too_early(item.not_before, window, now)
        if due is None:
            ready.append(item)
        else:
            early.append(unsent_row(item, in_time(due, item.deadline_at), now))
    rows.put_all(early)
    return ready
