"""Which pending rows of ordered targets a retry batch takes: the first ones of each shard that is not in use.

Called by `plan_retries`. It only selects rows that can probably be sent; the push decides.
"""

from __future__ import annotations

from datetime import datetime

from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.ordering import BEHIND_ITS_KEY, is_marked, waits_for_order
from eventbridge.rules import RuleSet
from eventbridge.rules.types import SMALL_CHUNK
from eventbridge.runtime.runtime import Runtime


def is_ordered(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether today's rules name a target and it is ordered."""
    found = rules.rules.get(rule)
    return found is not None and target in found.destinations and found.destinations[target].ordered


def keeps_waiting(rules: RuleSet, rule: str, target: str, held: str) -> bool:
    """Return whether rows that are on hold because of order stay so: today's rules still want that order."""
    if not waits_for_order(held) or not is_ordered(rules, rule, target):
        return False
    return held == BEHIND_ITS_KEY or rules.rules[rule].destinations[target].errors_tolerance == "none"


def ordered_due(runtime: Runtime, rule: str, target: str, now: datetime, runner: str | None) -> list[PendingDeliveries]:
    """Return the due rows of an ordered target, of shards without rows in a batch and without a lease of a push.

    Deliveries that were tried come first, because the rest of their key waits for them; then the oldest, by the batch
    that routed them.
    """
    leased = runtime.ledger.leases(rule, target)
    most = min(runtime.settings.retry_max_per_target, SMALL_CHUNK.deliveries)
    rows = runtime.ledger.due_of_ordered(now, rule, target, most)
    free = [row for row in rows if row.order_shard not in leased and runner in (None, row.runner)]
    return sorted(free, key=_turn)


def release_ready(runtime: Runtime, rules: RuleSet, runner: str | None) -> None:
    """Make due what was on hold because of order and has nothing left to wait for.

    That is, deliveries that an operator released or skipped, and shards in which everything waits for deliveries that
    are gone.
    """
    waiting = {
        (each.rule, each.target, each.held)
        for each in runtime.ledger.waiting_targets(runner)
        if each.state == "on_hold" and keeps_waiting(rules, each.rule, each.target, each.held)
    }
    for rule, target, held in sorted(waiting):
        if is_marked(held):
            runtime.ledger.dead_letter_pending(rule, target, held)
        elif held == BEHIND_ITS_KEY:
            for shard in runtime.ledger.shards_behind(rule, target):
                runtime.ledger.release_shard(rule, target, shard)


def _turn(row: PendingDeliveries) -> tuple[bool, str, int]:
    return (row.attempts == 0 and not is_marked(row.held), row.files[0][0], row.pending_id or 0)
