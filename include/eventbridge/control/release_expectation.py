"""Releases a rule that is on hold because an expectation failed: its waiting deliveries become due."""

from __future__ import annotations

from eventbridge.model.pending import EXPECTATION_FAILED
from eventbridge.model.rule_state import ExpectationHold
from eventbridge.runtime.runtime import Runtime


def release_expectation(runtime: Runtime, rule: str) -> tuple[ExpectationHold | None, int]:
    """Lift the hold of a rule; return it, None if it had none, and how many deliveries are due now.

    If the process dies in between, the next call or retry run makes them due.
    """
    hold = runtime.ledger.expectation_holds().get(rule)
    if hold is not None:
        runtime.ledger.drop_expectation_hold(rule)
    rows = runtime.ledger.pending(state="on_hold", rule=rule)
    held = [row for row in rows if row.held == EXPECTATION_FAILED and row.taken_by is None]
    overrides = runtime.ledger.overrides() if held else None
    due = 0
    for target in sorted({row.target for row in held}):
        instead = overrides.hold_reason(rule, target) if overrides else ""
        runtime.ledger.release_pending(rule, target, held=EXPECTATION_FAILED, instead=instead)
        due += 0 if instead else sum(row.count for row in held if row.target == target)
    return hold, due
