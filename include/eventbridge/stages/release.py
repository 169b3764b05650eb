"""Lets a rule go on that is held: what of it waits for that is due."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.ledger.records import HeldRule
from eventbridge.stages.references import hold_reason
from eventbridge.stages.workplace import Workplace


@dataclass(frozen=True)
class Released:
    """What was released of a rule: its hold (None: it was not held), references that are due now, and their events.

    `waits_for` says why references that wait go on waiting: something else holds them.
    """

    rule: str
    hold: HeldRule | None = None
    references: int = 0
    events: int = 0
    waits_for: str = ""

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to release."""
        return self.hold is None and not self.references and not self.waits_for


def release_rule(work: Workplace, rule: str) -> Released:
    """Lift the hold of a rule whose routing failed by itself, and make its references due; they age from then on.

    Harmless if the rule is not held. One that fails again is held again. Of a disabled rule only the hold is lifted.
    """
    hold = work.ledger.held_rules().get(rule)
    if hold is not None:
        work.ledger.release_rule(rule)
    held = [each for each in work.ledger.waiting_references() if (each.rule, each.state) == (rule, "held")]
    waiting = [each for each in held if each.taken_by is None]
    if not waiting:
        return Released(rule, hold)
    if waits_for := hold_reason(work.rule_set(), {}, {}, rule):
        return Released(rule, hold, waits_for=waits_for)
    # After the hold is lifted: who dies in between releases them by the next call, or by the next retry run.
    references = work.ledger.release_references(rule)
    return Released(rule, hold, references, sum(each.count for each in waiting))
