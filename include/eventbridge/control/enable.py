"""Takes a target that was disabled, or is degraded, back into service."""

from __future__ import annotations

from datetime import timedelta

from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED
from eventbridge.model.pending import TARGET_DISABLED
from eventbridge.policy.breaker import pause_of
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime


def enable_target(runtime: Runtime, rule: str, target: str) -> int:
    """Set a target's status to ok and make its deliveries on hold due; return how many those are.

    If the target is ok already, this only ends its pause. A dead letter queue is a target of its own, named
    `<target>/dead_letter_queue`; the copies that it refused are tried again.
    """
    status = runtime.ledger.target_statuses().get((rule, target))
    hastened = 0
    now = runtime.ledger.now()
    if status is not None and (until := pause_of(status, now)) is not None:
        # Before the pause ends: a process that dies in between does this again. Rows that are due sooner too:
        # concurrent pushes may get different times, and the ledger keeps the last one. Rows have whole seconds.
        last = until.replace(microsecond=0) + timedelta(seconds=1)
        hastened = runtime.ledger.hasten_pending(rule, target, now, last)
    if status is not None and (status.state != "ok" or status.paused_until is not None):
        runtime.ledger.set_target_status(rule, target, "ok", "enabled by hand")
    held = [row for row in runtime.ledger.pending(state="on_hold", rule=rule) if row.target == target]
    # deliveries on hold for a removed target continue to age while they wait: `aged`
    runtime.ledger.release_pending(rule, target, aged=True, held=TARGET_DISABLED)
    runtime.ledger.release_pending(rule, target, held=QUEUE_EXHAUSTED)
    publish_operational_events(runtime)
    return hastened + sum(row.count for row in held if row.held in (TARGET_DISABLED, QUEUE_EXHAUSTED))
