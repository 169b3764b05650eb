"""Releases a rule whose routing or expectation failed, or that a delivery blocks.

Those of the rule's deliveries and deferred matches that wait only for the release become due.
"""

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

#: The reasons of deliveries that have no payload, because transforming or routing their event failed.
_WITHOUT_PAYLOAD = ("transform_failed", "route_failed")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Released:
    """The result of releasing a rule.

    `hold` is the hold for failed routing that was lifted, or None. `deferred_matches` is the number of deferred matches
    that are due now, and `events` the number of their events. If the matches are still waiting, `waits_for` is the
    reason. `expectation` is the hold for a failed expectation that was lifted, or None, and `released` is the number
    of deliveries that waited for that and are due now. `retried`, `skipped` and `unsendable` are the deliveries that
    blocked the rule, because their target does not permit dead letters. The `unsendable` ones have no payload and stay
    on hold. `disabled` has the rule's disabled targets, whose deliveries stay on hold.
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
    released: int = 0

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to release."""
        deliveries = self.retried or self.skipped or self.unsendable
        holds = self.hold is not None or self.expectation is not None
        return not (holds or self.released or self.deferred_matches or self.waits_for or deliveries)


def release_rule(runtime: Runtime, rule: str, skip: str | None = None) -> Released:
    """Release a rule: lift the holds for failed routing and a failed expectation, and retry its blocking deliveries.

    If `skip` is a delivery id or the beginning of one, only dead-letter this delivery. Raises NotFoundError if it does
    not block the rule. If the cause persists, the rule is put on hold again.
    """
    if skip is not None:
        return Released(rule, skipped=(_skip_blocking(runtime, rule, skip),))
    retried, unsendable = _retry_blocking(runtime, rule)
    statuses = runtime.ledger.targets.statuses().items()
    disabled = sorted(target for (of, target), status in statuses if of == rule and status.state == "disabled")
    hold, deliveries = _release_expectation(runtime, rule)
    return replace(
        _release_routing(runtime, rule),
        retried=tuple(retried),
        unsendable=tuple(unsendable),
        disabled=tuple(disabled),
        expectation=hold,
        released=deliveries,
    )


def _release_routing(runtime: Runtime, rule: str) -> Released:
    """Lift a rule's hold for failed routing, and make its deferred matches due. They did not age while on hold.

    If there is another reason to hold them, such as that the rule is disabled, only the hold is lifted.
    """
    hold = runtime.ledger.rules.list_on_hold().get(rule)
    if hold is not None:
        runtime.ledger.rules.release(rule)
    on_hold = [
        each for each in runtime.ledger.deferred_matches.waiting() if (each.rule, each.state) == (rule, "on_hold")
    ]
    waiting = [each for each in on_hold if each.taken_by is None]
    if not waiting:
        return Released(rule, hold)
    if waits_for := deferred_match_hold_reason(
        runtime.rule_set(), {}, {}, runtime.ledger.overrides.get_effective(), rule
    ):
        return Released(rule, hold, waits_for=waits_for)
    # The hold is lifted first, so that the next call or retry run releases them if the process dies in between.
    deferred_matches = runtime.ledger.deferred_matches.release(rule)
    return Released(rule, hold, deferred_matches, sum(each.count for each in waiting))


def _release_expectation(runtime: Runtime, rule: str) -> tuple[ExpectationHold | None, int]:
    """Lift a rule's hold for a failed expectation, and make due the deliveries that waited for it.

    Returns the hold, or None, and the number of these deliveries. If the process dies in between, the next call or
    retry run makes them due.
    """
    hold = runtime.ledger.quality.holds().get(rule)
    if hold is not None:
        runtime.ledger.quality.release(rule)
    return hold, release_for_reason(runtime, rule, EXPECTATION_FAILED)


@dataclass(frozen=True)
class DeliveryOnHold:
    """A delivery that blocks a rule, and the reason for which it would have been dead-lettered."""

    target: str
    delivery_id: str
    reason: str


def deliveries_on_hold(runtime: Runtime, rule: str) -> dict[int, DeliveryOnHold]:
    """Return the deliveries that block a rule, in order, by the id of their pending row."""
    return {
        row.pending_id: DeliveryOnHold(row.target, name, row.reason)
        for row in runtime.ledger.order.rows_on_hold(rule)
        if row.pending_id is not None
        and row.taken_by is None
        and (name := delivery_on_hold_at(row.hold_reason)) is not None
    }


def _retry_blocking(runtime: Runtime, rule: str) -> tuple[list[DeliveryOnHold], list[DeliveryOnHold]]:
    """Make a rule's blocking deliveries due. Return them, and those without a payload, which stay on hold.

    If a delivery fails again, it is put on hold again.
    """
    found = deliveries_on_hold(runtime, rule)
    sendable = {pending_id: each for pending_id, each in found.items() if each.reason not in _WITHOUT_PAYLOAD}
    kept = [each for each in found.values() if each.reason in _WITHOUT_PAYLOAD]
    return [each for pending_id, each in sendable.items() if _release_row(runtime, pending_id, each, RELEASED)], kept


def _skip_blocking(runtime: Runtime, rule: str, delivery_id: str) -> DeliveryOnHold:
    """Dead-letter the one delivery that blocks a rule and whose id begins with `delivery_id`, and return it.

    If there is no such delivery, or if there are several, raises NotFoundError with a list of the blocking deliveries.
    """
    found = deliveries_on_hold(runtime, rule)
    wanted = delivery_id.strip().lower()  # every id begins with the empty string
    fitting = [pair for pair in found.items() if wanted and pair[1].delivery_id.startswith(wanted)]
    if len(fitting) == 1 and _release_row(runtime, *fitting[0], SKIPPED):
        return fitting[0][1]
    on_hold = ", ".join(f"{each.delivery_id} ({each.target}, {each.reason})" for each in found.values())
    here = (
        f"It is blocked by: {on_hold}"
        if on_hold
        else "No delivery blocks it; `eventbridge status` shows what is pending"
    )
    what = "several deliveries that begin with" if len(fitting) > 1 else "no delivery"
    raise NotFoundError(f"the rule {rule!r} is blocked by {what} {delivery_id!r}. {here}.")


def _release_row(runtime: Runtime, pending_id: int, delivery: DeliveryOnHold, note: str) -> bool:
    marked = runtime.ledger.order.release_row(pending_id, on_hold_at(delivery.delivery_id), note)
    if marked:
        log.warning("delivery %s to %s: %s by an operator", delivery.delivery_id, delivery.target, note)
    return marked
