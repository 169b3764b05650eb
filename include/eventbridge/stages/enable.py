"""Takes a disabled target back into service."""

from __future__ import annotations

from eventbridge.flow import TARGET_DISABLED
from eventbridge.stages.workplace import Workplace


def enable_target(work: Workplace, rule: str, target: str) -> int:
    """Set a target's status to ok and make what was held because of it due; returns how many deliveries that are."""
    work.ledger.set_target_status(rule, target, "ok", "enabled by hand")
    held = [row for row in work.ledger.parked(state="held", rule=rule) if row.target == target]
    # semantics.md section 4: deliveries held for a target that is gone go on ageing while they wait
    work.ledger.release_parked(rule, target, aged=True, held=TARGET_DISABLED)
    return sum(row.count for row in held if row.held == TARGET_DISABLED)
