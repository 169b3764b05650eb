"""Puts deliveries off that may not be sent yet: too early for them, or their target's window is closed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from eventbridge.decision.deadline import in_time
from eventbridge.decision.response_to_outcome import too_early
from eventbridge.rule.window import DeliverBetween
from eventbridge.stages.push.outstanding import Item
from eventbridge.stages.push.rows import OutcomeRows, unsent_row


def defer_early(
    items: Iterable[Item],
    window: DeliverBetween | None,
    now: datetime,
    rows: OutcomeRows,
) -> list[Item]:
    """Return the deliveries of a target that may be sent now; of the others rows of schema OUTCOME go to `rows`.

    Such a row is not an attempt: a retry_scheduled that says when the delivery may be sent; its end, where that is too
    late.
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
