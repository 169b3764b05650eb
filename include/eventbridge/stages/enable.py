"""Takes a target that was disabled, or is degraded, back into service."""

from __future__ import annotations

from eventbridge.flow import TARGET_DISABLED
from eventbridge.stages.letter_copies import QUEUE_EXHAUSTED
from eventbridge.stages.operations import publish_operational_events
from eventbridge.stages.workplace import Workplace


def enable_target(work: Workplace, rule: str, target: str) -> int:
    """Set a target's status to ok and make due what was held because of it; returns how many deliveries that are.

    Harmless if the target is well: nothing is held for it then, only its pause ends. A dead letter queue is a target
    of its own, named `<target>/dead_letter_queue`; what it would not take is tried anew.
    """
    status = work.ledger.target_statuses().get((rule, target))
    if status is not None and (status.state != "ok" or status.paused_until is not None):
        work.ledger.set_target_status(rule, target, "ok", "enabled by hand")
    held = [row for row in work.ledger.parked(state="held", rule=rule) if row.target == target]
    # deliveries held for a target that is gone go on ageing while they wait: `aged`
    work.ledger.release_parked(rule, target, aged=True, held=TARGET_DISABLED)
    work.ledger.release_parked(rule, target, held=QUEUE_EXHAUSTED)
    publish_operational_events(work)
    return sum(row.count for row in held if row.held in (TARGET_DISABLED, QUEUE_EXHAUSTED))
