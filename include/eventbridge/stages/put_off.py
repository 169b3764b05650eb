"""Puts deliveries off that may not be sent yet: too early for them, or their target's window is closed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from eventbridge.delivery import NOT_BEFORE, RetryAt
from eventbridge.delivery_window import first_opening
from eventbridge.rule.window import DeliverBetween
from eventbridge.stages.items import Item
from eventbridge.stages.outcome_rows import OutcomeRows, unsent_row


def put_off(
    items: Iterable[Item],
    window: DeliverBetween | None,
    now: datetime,
    rows: OutcomeRows,
) -> list[Item]:
    """Return the deliveries of a target that may be sent now; of the others rows of schema OUTCOME go to `rows`.

    Such a row is no attempt: a RetryAt that says when the delivery may be sent.
    """
    ready, early = [], []
    opens = first_opening(window, now)
    for item in items:
        if opens > now or (item.not_before is not None and item.not_before > now):
            due = RetryAt(first_opening(window, now, item.not_before), NOT_BEFORE)
            early.append(unsent_row(item, due, now))
        else:
            ready.append(item)
    rows.put_all(early)
    return ready
