"""Lets consumers receive the deliveries of queues, and say what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eventbridge.delivery.by_queue import end_attempts, end_expired_attempts
from eventbridge.model.queue import MAX_VISIBILITY, RELEASED, ReceivedDelivery
from eventbridge.policy.hold_reason import delivery_hold_reason
from eventbridge.processes import check_cancelled
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.queue.fields import QueueTargets, find_queue

#: The maximum number of bytes of payload in one response, unless a single delivery has more.
MAX_RESPONSE_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Receipts:
    """The result of a call that names receipts: how many took effect, and which did not because their visibility
    timeout was over."""

    done: int
    expired: tuple[str, ...]


def receive(
    runtime: Runtime, rules: RuleSet, name: str, count: int, visibility_seconds: float | None = None
) -> list[ReceivedDelivery]:
    """Give a consumer up to `count` deliveries of a queue; none of them is given to another one until its visibility
    timeout is over.

    The timeout is `visibility_seconds`, or that of the delivery's target. Deliveries of a paused or disabled rule or
    target are not given. Raises NotFoundError for an unknown queue, and Cancelled if the consumer has left.
    """
    targets = find_queue(rules, name)
    end_expired_attempts(runtime, rules, targets.keys())  # `rules` may lack the rules of other owners
    if not runtime.ledger.queues.has_receivable(targets):
        return []  # a consumer that waits only reads
    visible_for = {
        key: timedelta(seconds=target.visibility_timeout_seconds if visibility_seconds is None else visibility_seconds)
        for key, target in _open_targets(runtime, rules, targets).items()
    }
    if not visible_for:
        return []
    check_cancelled()
    return runtime.ledger.queues.receive(visible_for, count, MAX_RESPONSE_BYTES, visible_for)


def acknowledge(runtime: Runtime, rules: RuleSet, name: str, receipts: Sequence[str]) -> Receipts:
    """Record that a consumer has processed deliveries; a repetition has the same result."""
    targets = find_queue(rules, name)
    is_ordered = any(target.ordered for target in targets.values())
    return _result(receipts, runtime.ledger.queues.acknowledge(targets.keys(), receipts, ordered=is_ordered))


def extend(runtime: Runtime, rules: RuleSet, name: str, receipts: Sequence[str], seconds: float) -> Receipts:
    """Let a consumer keep deliveries for this time from now on, at most 12 hours after it received them."""
    targets = find_queue(rules, name)
    wanted = timedelta(seconds=seconds)
    return _result(receipts, runtime.ledger.queues.extend(targets.keys(), receipts, wanted, MAX_VISIBILITY))


def release(
    runtime: Runtime,
    rules: RuleSet,
    name: str,
    receipts: Sequence[str],
    delay_seconds: float | None = None,
    error: str = "",
) -> Receipts:
    """Record that a consumer has failed with deliveries: the attempt counts, and they return to the queue.

    They are visible again after `delay_seconds`, or after the delay of the retry policy.
    """
    targets = find_queue(rules, name)
    held = runtime.ledger.queues.held(targets.keys(), receipts)
    done = end_attempts(runtime, rules, held, RELEASED, error, delay_seconds)
    return _result(receipts, {each.receipt for each in done if each.receipt is not None})


def _open_targets(runtime: Runtime, rules: RuleSet, targets: QueueTargets) -> QueueTargets:
    """Return the targets that are neither paused nor disabled."""
    statuses, overrides = runtime.ledger.targets.statuses(), runtime.ledger.overrides.get_effective()
    return {
        key: target for key, target in targets.items() if not delivery_hold_reason(rules, statuses, {}, overrides, *key)
    }


def _result(receipts: Sequence[str], done: set[str]) -> Receipts:
    return Receipts(len(done), tuple(each for each in dict.fromkeys(receipts) if each not in done))
