"""Releases a rule that is on hold, at a delivery or by a failed expectation: its waiting deliveries become due."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from eventbridge.control.overrides import release_for_reason
from eventbridge.errors import NotFoundError
from eventbridge.model.pending import EXPECTATION_FAILED
from eventbridge.model.rule_state import ExpectationHold, RuleOnHold
from eventbridge.policy.hold_reason import deferred_match_hold_reason
from eventbridge.policy.ordering import RELEASED, SKIPPED, delivery_on_hold_at, on_hold_at
from eventbridge.runtime.runtime import Runtime

#: Reasons why a delivery has no payload.
_WITHOUT_PAYLOAD = ("transform_failed", "route_failed")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Released:
    """The result of releasing a rule: its hold (None without one), deferred matches that are due now, their events.

    `expectation` is the hold for an expectation that failed, and `deliveries` how many waited for that and are due now.
    `waits_for` is what else holds deferred matches that still wait. `retried`, `skipped` and `unsendable` are
    deliveries that the rule was on hold at, as none of its target may be dead-lettered; `unsendable` ones stay on hold.
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
        return Released(rule, skipped=(_skip_on_hold(runtime, rule, skip),))
    retried, unsendable = _try_again_on_hold(runtime, rule)
    statuses = runtime.ledger.targets.statuses().items()
    disabled = sorted(target for (of, target), status in statuses if of == rule and status.state == "disabled")
    hold, deliveries = _release_expectation(runtime, rule)
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
    hold = runtime.ledger.rules.on_hold().get(rule)
    if hold is not None:
        runtime.ledger.rules.release(rule)
    on_hold = [
        each for each in runtime.ledger.deferred_matches.waiting() if (each.rule, each.state) == (rule, "on_hold")
    ]
    waiting = [each for each in on_hold if each.taken_by is None]
    if not waiting:
        return Released(rule, hold)
    if waits_for := deferred_match_hold_reason(runtime.rule_set(), {}, {}, runtime.ledger.overrides.in_effect(), rule):
        return Released(rule, hold, waits_for=waits_for)
    # After the hold is lifted: if the process dies in between, the next call or retry run releases them.
    deferred_matches = runtime.ledger.deferred_matches.release(rule)
    return Released(rule, hold, deferred_matches, sum(each.count for each in waiting))


def _release_expectation(runtime: Runtime, rule: str) -> tuple[ExpectationHold | None, int]:
    """Lift the hold of a rule; return it, None if it had none, and how many deliveries are due now.

    If the process dies in between, the next call or retry run makes them due.
    """
    hold = runtime.ledger.quality.holds().get(rule)
    if hold is not None:
        runtime.ledger.quality.release(rule)
    return hold, release_for_reason(runtime, rule, EXPECTATION_FAILED)


@dataclass(frozen=True)
class DeliveryOnHold:
    """A delivery that a rule is on hold at, and why it would have been dead-lettered."""

    target: str
    delivery_id: str
    reason: str


def deliveries_on_hold(runtime: Runtime, rule: str) -> dict[int, DeliveryOnHold]:
    """Return the deliveries that a rule is on hold at, by the ids of their pending rows, in order."""
    return {
        row.pending_id: DeliveryOnHold(row.target, name, row.reason)
        for row in runtime.ledger.order.rows_on_hold(rule)
        if row.pending_id is not None
        and row.taken_by is None
        and (name := delivery_on_hold_at(row.hold_reason)) is not None
    }


def _try_again_on_hold(runtime: Runtime, rule: str) -> tuple[list[DeliveryOnHold], list[DeliveryOnHold]]:
    """Make the deliveries due that a rule is on hold at; return those, and those without payload, which stay on hold.

    One that fails again is on hold again.
    """
    found = deliveries_on_hold(runtime, rule)
    sendable = {pending_id: each for pending_id, each in found.items() if each.reason not in _WITHOUT_PAYLOAD}
    kept = [each for each in found.values() if each.reason in _WITHOUT_PAYLOAD]
    return [each for pending_id, each in sendable.items() if _mark(runtime, pending_id, each, RELEASED)], kept


def _skip_on_hold(runtime: Runtime, rule: str, delivery_id: str) -> DeliveryOnHold:
    """Turn exactly one delivery that a rule is on hold at into a dead letter, and return it.

    Takes its id, or the beginning of it. Raises NotFoundError, with the deliveries on hold, if it is not among them.
    """
    found = deliveries_on_hold(runtime, rule)
    wanted = delivery_id.strip().lower()  # each id begins with an empty one
    fitting = [pair for pair in found.items() if wanted and pair[1].delivery_id.startswith(wanted)]
    if len(fitting) == 1 and _mark(runtime, *fitting[0], SKIPPED):
        return fitting[0][1]
    on_hold = ", ".join(f"{each.delivery_id} ({each.target}, {each.reason})" for each in found.values())
    here = f"It is on hold at: {on_hold}" if on_hold else "It is on hold at none; `eventbridge status` shows what waits"
    what = "several deliveries" if len(fitting) > 1 else "no delivery"
    raise NotFoundError(f"the rule {rule!r} is on hold at {what} {delivery_id!r}. {here}.")


def _mark(runtime: Runtime, pending_id: int, delivery: DeliveryOnHold, note: str) -> bool:
    marked = runtime.ledger.order.release_row(pending_id, on_hold_at(delivery.delivery_id), note)
    if marked:
        log.warning("delivery %s to %s: %s by hand", delivery.delivery_id, delivery.target, note)
    return marked
