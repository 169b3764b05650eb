"""Releases a rule that is on hold: its waiting deliveries become due."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eventbridge.control.release_expectation import release_expectation
from eventbridge.control.release_on_hold import DeliveryOnHold, skip_on_hold, try_again_on_hold
from eventbridge.model.rule_state import ExpectationHold, RuleOnHold
from eventbridge.policy.hold_reason import deferred_match_hold_reason
from eventbridge.runtime.runtime import Runtime


@dataclass(frozen=True)
class Released:
    """The result of releasing a rule: its hold (None: it had none), deferred matches that are due now, their events.

    `expectation` is the hold for an expectation that failed, and `deliveries` how many waited for that and are due now.

    `waits_for` says why deferred matches that wait go on waiting: something else holds them. `retried`, `skipped` and
    `unsendable` are deliveries that the rule was on hold at, as none of its target may be dead-lettered; the last stay
    so.
    `disabled` are its targets whose deliveries are on hold until the target is enabled.
    """

    rule: str
    hold: RuleOnHold | None = None
    deferred_matches: int = 0
    events: int = 0
    waits_for: str = ""
    retried: tuple[DeliveryOnHold, ...] = ()
    skipped: tuple[DeliveryOnHold, ...] = ()
    unsendable: tuple[DeliveryOnHold, ...] = ()
    disabled: tuple[str, ...] = ()
    expectation: ExpectationHold | None = None
    deliveries: int = 0

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to release."""
        deliveries = self.retried or self.skipped or self.unsendable
        holds = self.hold is not None or self.expectation is not None
        return not (holds or self.deliveries or self.deferred_matches or self.waits_for or deliveries)


def release_rule(runtime: Runtime, rule: str, skip: str | None = None) -> Released:
    """Release a rule: lift its holds (its routing failed, an expectation failed), and retry the deliveries on hold.

    With `skip`, a delivery id or its beginning, only that delivery becomes a dead letter; raises NotFoundError if the
    rule is not on hold at it. A rule without a hold is left as it is; one that fails again is on hold again.
    """
    if skip is not None:
        return Released(rule, skipped=(skip_on_hold(runtime, rule, skip),))
    retried, unsendable = try_again_on_hold(runtime, rule)
    statuses = runtime.ledger.target_statuses().items()
    disabled = sorted(target for (of, target), status in statuses if of == rule and status.state == "disabled")
    hold, deliveries = release_expectation(runtime, rule)
    return replace(
        _release_routing(runtime, rule),
        retried=tuple(retried),
        unsendable=tuple(unsendable),
        disabled=tuple(disabled),
        expectation=hold,
        deliveries=deliveries,
    )


def _release_routing(runtime: Runtime, rule: str) -> Released:
    """Lift a rule's hold and make its deferred matches due; they age from then on. If disabled, only lift the hold."""
    hold = runtime.ledger.rules_on_hold().get(rule)
    if hold is not None:
        runtime.ledger.release_rule(rule)
    held = [each for each in runtime.ledger.waiting_deferred_matches() if (each.rule, each.state) == (rule, "on_hold")]
    waiting = [each for each in held if each.taken_by is None]
    if not waiting:
        return Released(rule, hold)
    if waits_for := deferred_match_hold_reason(runtime.rule_set(), {}, {}, runtime.ledger.overrides(), rule):
        return Released(rule, hold, waits_for=waits_for)
    # After the hold is lifted: if the process dies in between, the next call or retry run releases them.
    deferred_matches = runtime.ledger.release_deferred_matches(rule)
    return Released(rule, hold, deferred_matches, sum(each.count for each in waiting))
