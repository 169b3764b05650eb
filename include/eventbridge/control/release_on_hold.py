"""Releases a rule that is on hold at a delivery which may not be dead-lettered: the delivery is retried or skipped."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from eventbridge.errors import NotFoundError
from eventbridge.policy.ordering import RELEASED, SKIPPED, delivery_on_hold_at, on_hold_at
from eventbridge.runtime.runtime import Runtime

#: Reasons for which a delivery has no payload.
_WITHOUT_PAYLOAD = ("transform_failed", "route_failed")

log = logging.getLogger(__name__)


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
        for row in runtime.ledger.on_hold_of_rule(rule)
        if row.pending_id is not None and row.taken_by is None and (name := delivery_on_hold_at(row.held)) is not None
    }


def try_again_on_hold(runtime: Runtime, rule: str) -> tuple[list[DeliveryOnHold], list[DeliveryOnHold]]:
    """Make the deliveries due that a rule is on hold at; return those, and those without payload, which stay on hold.

    One that fails again is on hold again.
    """
    found = deliveries_on_hold(runtime, rule)
    sendable = {pending_id: each for pending_id, each in found.items() if each.reason not in _WITHOUT_PAYLOAD}
    kept = [each for each in found.values() if each.reason in _WITHOUT_PAYLOAD]
    return [each for pending_id, each in sendable.items() if _mark(runtime, pending_id, each, RELEASED)], kept


def skip_on_hold(runtime: Runtime, rule: str, delivery_id: str) -> DeliveryOnHold:
    """Turn exactly one delivery that a rule is on hold at into a dead letter, and return it.

    Takes its id, or the beginning of it. Raises NotFoundError, with the deliveries on hold, if it is not among them.
    """
    found = deliveries_on_hold(runtime, rule)
    wanted = delivery_id.strip().lower()  # each id begins with an empty one
    fitting = [pair for pair in found.items() if wanted and pair[1].delivery_id.startswith(wanted)]
    if len(fitting) == 1 and _mark(runtime, *fitting[0], SKIPPED):
        return fitting[0][1]
    held = ", ".join(f"{each.delivery_id} ({each.target}, {each.reason})" for each in found.values())
    said = f"It is on hold at: {held}" if held else "It is on hold at none; `eventbridge status` shows what waits"
    what = "several deliveries" if len(fitting) > 1 else "no delivery"
    raise NotFoundError(f"the rule {rule!r} is on hold at {what} {delivery_id!r}. {said}.")


def _mark(runtime: Runtime, pending_id: int, delivery: DeliveryOnHold, note: str) -> bool:
    marked = runtime.ledger.mark_on_hold(pending_id, on_hold_at(delivery.delivery_id), note)
    if marked:
        log.warning("delivery %s to %s: %s by hand", delivery.delivery_id, delivery.target, note)
    return marked
