"""Plans retry batches, which send the pending deliveries that are due, and finishes batches whose run died.

The DAG `eventbridge_retry_deliveries` and `eventbridge deliver` plan retry batches with it. Redrives and replays use it
too, to settle stale batches before they plan a batch. The other stages then run as for any batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from eventbridge.delivery.by_queue import tend_queues
from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED
from eventbridge.errors import ReconciliationError
from eventbridge.event.ids import new_batch_id
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchKind
from eventbridge.model.chunk import SLOW_LANE_POOL, SLOW_LANE_WEIGHT, Chunk, Piece
from eventbridge.model.pending import RULE_REMOVED, TARGET_DISABLED, PendingDeliveries, WaitingTarget
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.chunks import RetryChunks, keeps_waiting, release_ready
from eventbridge.pipeline.route.budgeted_rules import defer_again
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.delivery_windows import late_reported_before, missed_before
from eventbridge.policy.hold_reason import delivery_hold_reason
from eventbridge.policy.operational_event import running_late_event
from eventbridge.rules import RuleSet
from eventbridge.runtime.identity import refuse_lost_ledger
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import freeze_rules

log = logging.getLogger(__name__)

#: The time for which deliveries of a removed rule or target are kept, in case it is restored, before they are
#: dead-lettered.
REMOVED_RULE_GRACE = timedelta(hours=1)
#: A batch counts as stale if it is still uncommitted this many seconds, in addition to the push timeout, after its
#: deadline.
_STALE_MARGIN_SECONDS = 10.0
#: The kinds of batches that no later run continues, because each run plans a new batch.
_ABANDONED_KINDS: tuple[BatchKind, ...] = ("retry", "redrive", "replay")


@dataclass(frozen=True)
class RetryPlan:
    """The planned retry batch and its chunks; `batch_id` is None if nothing is due."""

    batch_id: str | None = None
    chunk_ids: list[int] = field(default_factory=list)


@instrumented("plan_retries", of="runner")
def plan_retries(
    runtime: Runtime, runner: str | None = None, pools: Mapping[str, PoolSlots] | None = None
) -> RetryPlan:
    """Take due pending deliveries into a new batch that is already routed.

    The batch has one chunk for each target. A target that is ok may get more, within the limits of the target and the
    free slots of the retry pool; see `RetryChunks`. If a target's breaker is open, the batch has only those of its
    deliveries that can no longer be sent, to dead-letter them. For a target that may be probed, it has a few
    deliveries. If two processes take the same rows at the same time, one of them gets nothing. If `runner` is None,
    deliveries of all runners are taken. If `pools` is None, the pools are unknown, and none counts as closed.
    Deliveries of a rule that the current rule files disable go on hold. Deliveries of a removed rule go on hold for 1 h
    and are then dead-lettered, one chunk in each batch.
    """
    refuse_lost_ledger(runtime)
    rules = runtime.rule_set()
    tend_queues(runtime, rules)
    update_holds(runtime, rules, runner, pools or {})
    publish_operational_events(runtime)
    release_ready(runtime, rules, runner)
    chunks = RetryChunks(runtime, rules, runner, (pools or {}).get(SLOW_LANE_POOL)).take()
    if not chunks:
        return RetryPlan()
    now = runtime.clock()
    batch = Batch(
        batch_id=new_batch_id(now),
        kind="retry",
        runner=runner or "",
        bus="",
        state="routed",
        rule_set=freeze_rules(runtime.store, rules),
        planned_at=now,
        deadline_at=now + timedelta(seconds=runtime.settings.batch_timeout),
    )
    planned = [_chunk(batch.batch_id, number, rows) for number, rows in enumerate(chunks)]
    taken = [row.pending_id for rows in chunks for row in rows if row.pending_id is not None]
    if not runtime.ledger.pending.take(batch, planned, taken):
        return RetryPlan()
    return RetryPlan(batch.batch_id, [chunk.chunk_id for chunk in planned])


@instrumented("settle_stale", of="runner")
def settle_stale(runtime: Runtime, runner: str | None = None) -> list[str]:
    """Settle and commit the retry, redrive and replay batches whose run died, and schedule the retries of their
    deliveries; return the ids of the batches.

    This function sends nothing. If such a batch took deferred matches but did not route them, they are deferred again.
    If a batch raises ReconciliationError, the others are still processed, and the first such error is raised at the
    end. Any other error is raised immediately.
    """
    batches = stale_batches(runtime, runner)
    wrong: list[ReconciliationError] = []
    for batch in batches:
        try:
            _settle_and_commit(runtime, batch)
        except ReconciliationError as error:
            log.error("ALARM %s", error)
            wrong.append(error)
    if wrong:
        raise wrong[0]
    return [batch.batch_id for batch in batches]


def stale_batches(runtime: Runtime, runner: str | None = None) -> list[Batch]:
    """Return the retry, redrive and replay batches whose run died before it committed them, the longest overdue
    first."""
    grace = runtime.settings.push_timeout + _STALE_MARGIN_SECONDS
    return runtime.ledger.batches.overdue(runtime.clock(), _ABANDONED_KINDS, runner, grace_seconds=grace)


def _settle_and_commit(runtime: Runtime, batch: Batch) -> None:
    if batch.state == "buffered":
        defer_again(runtime, batch)
    write_dead_letters(runtime, batch.batch_id)
    schedule_retries(runtime, batch.batch_id)
    commit(runtime, batch.batch_id)


def update_holds(runtime: Runtime, rules: RuleSet, runner: str | None, pools: Mapping[str, PoolSlots]) -> None:
    """Put on hold the deliveries that must not be sent now, and release those whose hold reason no longer applies."""
    now = runtime.clock()
    statuses, overrides = runtime.ledger.targets.statuses(), runtime.ledger.overrides.get_effective()
    for waiting in runtime.ledger.pending.waiting_targets(runner):
        rule, target, hold_reason = waiting.rule, waiting.target, waiting.hold_reason
        if hold_reason == QUEUE_EXHAUSTED:
            continue  # on hold until an operator fixes the queue and runs `targets enable`
        reason = delivery_hold_reason(rules, statuses, pools, overrides, rule, target)
        if keeps_waiting(rules, rule, target, hold_reason):
            continue
        if reason == hold_reason:
            if _grace_is_over(waiting, now):
                runtime.ledger.pending.dead_letter(rule, target, RULE_REMOVED)
        elif hold_reason:
            # deliveries age on hold only if their target is disabled
            runtime.ledger.pending.release(
                rule, target, aged=hold_reason == TARGET_DISABLED, hold_reason=hold_reason, instead=reason
            )
        else:
            runtime.ledger.pending.hold(rule, target, reason)
    runtime.ledger.pending.release_expired(now)
    _check_deadlines(runtime, rules)


def _check_deadlines(runtime: Runtime, rules: RuleSet) -> None:
    """Release the deliveries that missed their deadline, so that they are dead-lettered, and report those that will
    soon miss it."""
    now = runtime.ledger.now()
    for rule in rules.with_field("deliver_within"):
        for target in rule.targets.values():
            within = target.deliver_within_seconds
            if within is not None:
                runtime.ledger.due.release_missed(rule.name, target.name, missed_before(within, now))
                event_of = partial(running_late_event, rule.name, target.name, within, time=now)
                runtime.ledger.due.report_late(rule.name, target.name, late_reported_before(within, now), event_of)


def _grace_is_over(waiting: WaitingTarget, now: datetime) -> bool:
    if waiting.state != "on_hold" or waiting.hold_reason != RULE_REMOVED or waiting.newest_on_hold_since is None:
        return False
    return now - waiting.newest_on_hold_since >= REMOVED_RULE_GRACE


def _chunk(batch_id: str, number: int, rows: Sequence[PendingDeliveries]) -> Chunk:
    pieces = tuple(piece for row in rows for piece in _pieces(row))
    return Chunk(
        batch_id=batch_id,
        chunk_id=number,
        pool=SLOW_LANE_POOL,
        weight=SLOW_LANE_WEIGHT,
        pieces=pieces,
        rows=sum(piece.count for piece in pieces),
        size=sum(piece.size for piece in pieces),
        map_index=number,
    )


def _pieces(row: PendingDeliveries) -> list[Piece]:
    return [
        Piece(
            file=file,
            rows=rows,
            count=rowset.count(rows),
            size=row.size * rowset.count(rows) // row.count,
            rule=row.rule,
            target=row.target,
            attempts=row.attempts,
            on_hold_seconds=row.on_hold_seconds,
            lineage=row.lineage,
            pending_id=row.pending_id,
        )
        for file, rows in row.files
    ]
