"""Lets a rule go on that is held at a delivery which may not be given up: it is tried again, or skipped."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from eventbridge.decision.ordering import RELEASED, SKIPPED, delivery_held_at, held_at
from eventbridge.errors import NotFoundError
from eventbridge.stages.runtime.runtime import Runtime

#: Why a delivery has nothing that could be sent.
_WITHOUT_PAYLOAD = ("TransformFailed", "RouteFailed")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldDelivery:
    """A delivery that a rule is held at, and why it would have been given up."""

    target: str
    delivery_id: str
    reason: str


def held_deliveries(work: Runtime, rule: str) -> dict[int, HeldDelivery]:
    """Return the deliveries that a rule is held at, by the ids of their pending rows, in order."""
    return {
        row.pending_id: HeldDelivery(row.target, name, row.reason)
        for row in work.ledger.held_of_rule(rule)
        if row.pending_id is not None and row.taken_by is None and (name := delivery_held_at(row.held)) is not None
    }


def try_held_again(work: Runtime, rule: str) -> tuple[list[HeldDelivery], list[HeldDelivery]]:
    """Make due the deliveries that a rule is held at; return those, and those without payload, which stay held.

    One that fails again is held again.
    """
    found = held_deliveries(work, rule)
    sendable = {pending_id: each for pending_id, each in found.items() if each.reason not in _WITHOUT_PAYLOAD}
    kept = [each for each in found.values() if each.reason in _WITHOUT_PAYLOAD]
    return [each for pending_id, each in sendable.items() if _mark(work, pending_id, each, RELEASED)], kept


def skip_held(work: Runtime, rule: str, delivery_id: str) -> HeldDelivery:
    """Have exactly one delivery that a rule is held at become a dead letter, and return it.

    Takes its id, or the beginning of it. Raises NotFoundError, naming those there are, if the rule is not held at it.
    """
    found = held_deliveries(work, rule)
    wanted = delivery_id.strip().lower()  # each id begins with an empty one
    fitting = [pair for pair in found.items() if wanted and pair[1].delivery_id.startswith(wanted)]
    if len(fitting) == 1 and _mark(work, *fitting[0], SKIPPED):
        return fitting[0][1]
    held = ", ".join(f"{each.delivery_id} ({each.target}, {each.reason})" for each in found.values())
    said = f"It is held at: {held}" if held else "It is held at none; `eventbridge status` shows what waits"
    what = "several deliveries" if len(fitting) > 1 else "no delivery"
    raise NotFoundError(f"the rule {rule!r} is held at {what} {delivery_id!r}. {said}.")


def _mark(work: Runtime, pending_id: int, delivery: HeldDelivery, note: str) -> bool:
    marked = work.ledger.mark_held(pending_id, held_at(delivery.delivery_id), note)
    if marked:
        log.warning("delivery %s to %s: %s by hand", delivery.delivery_id, delivery.target, note)
    return marked
