"""Puts deliveries into queues, and takes over from there what consumers did with them.

Such a delivery is pending in the books from the push that puts it into its queue until a later push finds it
acknowledged or dead: then it becomes delivered, or a dead letter. In between it is due when its event is too old. What
consumers do is in the ledger at once (`ledger.queues`); `tend_queues` makes pending deliveries due whose result is
there. So no push waits for a consumer, and no result is lost: the row in the queue stays until the batch that found the
result is settled.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from eventbridge.delivery.ordered_backlog import open_deliveries
from eventbridge.delivery.ordered_runs import DEFERRED_MATCH_SECONDS, OrderedItem, ordered_items
from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.rows import outcome_row, unsent_row
from eventbridge.delivery.run import SLEEP_SECONDS, Send, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.delivery.steps import Steps
from eventbridge.fault_points import reach
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.outcome import DELIVERED, DeadLettered, Response, RetryAt
from eventbridge.model.queue import (
    IN_QUEUE,
    QUEUE_REASONS,
    VISIBILITY_EXPIRED,
    AttemptEnd,
    EndedAttempt,
    QueuedDelivery,
    QueueEntry,
)
from eventbridge.policy.delivery_windows import missed
from eventbridge.policy.ordering import BLOCKED, DEFERRED_MATCH_FIRST, lease_until, shard_of
from eventbridge.policy.response_to_outcome import delay_seconds, expired, too_early
from eventbridge.rules import RuleSet
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.queue.fields import PullQueueFields

#: The maximum number of deliveries, and of their bytes, in one transaction.
_MAX_ROWS: Final = 500
_MAX_BYTES: Final = 4 << 20
#: The maximum number of expired attempts that are ended at a time.
_EXPIRED_AT_ONCE: Final = 1_000


class QueueDeliveries:
    """Puts the deliveries of one target into its queue, or takes over their results.

    `in_order` holds the deliveries with an order key. `blocked` are those that an earlier push of the chunk could not
    put into the queue yet, so that later ones of their keys must wait.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch: Batch,
        chunk: Chunk,
        key: tuple[str, str],
        items: Sequence[Item],
        in_order: Sequence[OrderedItem] = (),
        blocked: Sequence[OrderedItem] = (),
    ) -> None:
        self.total = len(items) + len(in_order)
        self._runtime, self._batch, self._chunk, self._key = runtime, batch, chunk, key
        self._items, self._in_order, self._blocked = items, in_order, blocked
        self._queues = runtime.ledger.queues

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Handle every delivery, unless the budget is spent or the run must end."""
        run.report.held_up = True  # a queue is never slow, however few deliveries are settled
        left = self._take_results(run, self._items)
        for group in _groups(left):
            if run.must_end(run.clock()):
                break
            self._put(run, group)
        yield from self._deliver_in_order(run)
        handled = run.report.delivered + run.report.dead_lettered + run.report.retried
        run.report.spent = handled < self.total and not run.is_refused and run.clock() >= run.until

    def _take_results(self, run: TargetRun, items: Sequence[Item]) -> list[Item]:
        """Write the outcomes of deliveries that are in the queue; return the others."""
        left: list[Item] = []
        for group in _groups(items):
            if run.must_end(run.clock()):
                break
            now = run.clock()
            over = {each.request.delivery_id: end for each in group if (end := _end_of(run, each, now)) is not None}
            known = self._queues.push_again(
                self._batch.batch_id,
                {each.request.delivery_id: _expires_at(run, each) for each in group},
                {name: (end.reason, end.detail) for name, end in over.items()},
                ordered=bool(self._in_order),
            )
            for item in group:
                found, end = known.get(item.request.delivery_id), over.get(item.request.delivery_id)
                if found is not None:
                    _write_state(run, item, found, now)
                elif end is not None:
                    run.write(item, end, None)
                else:
                    left.append(item)
        return left

    def _put(self, run: TargetRun, items: Sequence[Item]) -> None:
        """Put deliveries into the queue, or defer those that consumers may not receive yet."""
        ready = []
        for item in items:
            early = too_early(item.not_before, None, run.clock())
            if early is None:
                ready.append(item)
            else:
                run.write(item, early, None)
        self._add(run, ready)

    def _add(self, run: TargetRun, items: Sequence[Item]) -> None:
        if not items:
            return
        reach("target.send")
        self._queues.add(self._batch.batch_id, [_entry(run, each) for each in items])
        reach("target.responded")
        for item in items:
            run.write(item, RetryAt(_expires_at(run, item), IN_QUEUE), None)

    def _deliver_in_order(self, run: TargetRun) -> Steps[None]:
        by_shard: dict[int, list[OrderedItem]] = defaultdict(list)
        for item in self._take_results(run, self._in_order):
            assert isinstance(item, OrderedItem), "so they were given"
            by_shard[shard_of(item.key)].append(item)
        for shard, items in by_shard.items():
            yield from self._put_shard(run, shard, items)

    def _put_shard(self, run: TargetRun, shard: int, items: list[OrderedItem]) -> Steps[None]:
        """Put the deliveries of a shard into the queue in their order; one waits if an earlier one of its key is not
        there."""
        order, holder = self._runtime.ledger.order, f"{self._batch.batch_id}/{self._chunk.chunk_id}/{self._chunk.claim}"

        def has_lease() -> bool:
            return order.acquire_lease(*self._key, shard, holder, lease_until(run.clock(), 0.0))

        while not has_lease():
            if run.must_end(run.clock()) or not (yield from run.sleep(SLEEP_SECONDS)):
                return
        try:
            for group in _groups(self._passable(run, shard, items)):
                if run.must_end(run.clock()) or not has_lease():
                    return
                self._add(run, group)
        finally:
            order.release_lease(*self._key, shard, holder)

    def _passable(self, run: TargetRun, shard: int, items: list[OrderedItem]) -> list[Item]:
        """Return the deliveries of a shard that may be put into the queue now, in their order; defer the others."""
        items.sort(key=lambda item: item.position)
        own = {piece.pending_id for piece in self._chunk.pieces if piece.pending_id is not None}
        positions = [item.position for item in items]
        others = open_deliveries(self._runtime, self._batch, self._key, shard, positions, own)
        for item in self._blocked:
            others.add(item.key, item.position, head=True)
        ready: list[Item] = []
        for item in items:
            now = run.clock()
            reason = others.reason_to_wait(item.key, item.position) if item.attempts == 0 else ""
            early = too_early(item.not_before, None, now)
            if reason:
                seconds = DEFERRED_MATCH_SECONDS if reason == DEFERRED_MATCH_FIRST else 1.0
                run.write(item, RetryAt(now + timedelta(seconds=seconds), reason), None)
            elif early is not None:
                others.add(item.key, item.position, head=True)
                run.write(item, early, None)
            else:
                ready.append(item)
        return ready


def queue_deliveries(
    runtime: Runtime,
    batch: Batch,
    chunk: Chunk,
    spec: PullQueueFields,
    pieces: Sequence[Piece],
    items: Sequence[Item],
    done: Mapping[bytes, BestOutcome],
) -> QueueDeliveries:
    """Return the deliveries of a chunk to a queue; `items` are those of `pieces` without an outcome in `done`."""
    key = (pieces[0].rule, spec.name)
    if not spec.ordered:
        return QueueDeliveries(runtime, batch, chunk, key, items)
    in_order, blocked = [], []
    for item in ordered_items(runtime, batch, pieces, spec.deliver_within_seconds):
        seen = done.get(item.delivery_id)
        if item.failure is not None:
            continue  # settlement makes it a dead letter, which blocks nothing
        if seen is None or seen.status == "unknown" or seen.reason in (BLOCKED, DEFERRED_MATCH_FIRST):
            in_order.append(item)
        elif seen.status == "retry_scheduled" and seen.reason not in QUEUE_REASONS:
            blocked.append(item)
    without_key = [item for item in items if item.request.order_key is None]
    return QueueDeliveries(runtime, batch, chunk, key, without_key, in_order, blocked)


def _groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield items in groups for one transaction each."""
    group: list[Item] = []
    size = 0
    for item in items:
        if group and (len(group) == _MAX_ROWS or size >= _MAX_BYTES):
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item.request.payload)
    if group:
        yield group


def _end_of(run: TargetRun, item: Item, now: datetime) -> DeadLettered | None:
    """Return why a delivery is too late or too old to be received, or None."""
    return missed(item.deadline_at, now) or expired(run.settings.policy, item.arrived_at, item.on_hold_seconds, now)


def _expires_at(run: TargetRun, item: Item) -> datetime:
    """Return when a delivery becomes too late or too old to be received."""
    age = timedelta(seconds=item.on_hold_seconds + run.settings.policy.maximum_event_age_seconds)
    expires_at = item.arrived_at + age
    return expires_at if item.deadline_at is None else min(expires_at, item.deadline_at)


def _entry(run: TargetRun, item: Item) -> QueueEntry:
    request, key = item.request, item.request.order_key
    # a hash, because a key may have characters that a database does not accept
    hashed = None if key is None else hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return QueueEntry(
        request.delivery_id,
        item.rule,
        item.target,
        item.attempts,
        _expires_at(run, item),
        request.payload,
        request.content_type,
        dict(request.headers),
        hashed,
    )


def _write_state(run: TargetRun, item: Item, found: QueuedDelivery, now: datetime) -> None:
    """Write the attempts of consumers that the books do not have yet, and the outcome of a delivery."""
    known, report, rows = item.attempts, run.report, run.settings.rows
    has_it = found.is_received(now)
    due_at = max(found.visible_at, _expires_at(run, item)) if has_it else _expires_at(run, item)
    for number, started_at, ended_at, error_class, error in found.ended:
        if number > known:
            response = Response(False, started_at, _milliseconds(started_at, ended_at), None, error_class, error)
            rows.put(outcome_row(replace(item, attempts=number), RetryAt(due_at, error_class), response))
            item.attempts = number
    if found.state == "acknowledged" and found.received_at is not None and found.finished_at is not None:
        item.attempts = found.attempts
        took = _milliseconds(found.received_at, found.finished_at)
        report.delivered += 1
        rows.put(outcome_row(item, DELIVERED, Response(True, found.received_at, took)))
    elif found.state == "dead":
        report.dead_lettered += 1
        rows.put(unsent_row(item, DeadLettered(found.reason or "", found.detail or ""), now))
    else:
        report.retried += 1
        rows.put(unsent_row(item, RetryAt(due_at, IN_QUEUE), now))


def _milliseconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds() * 1_000)


def end_attempts(
    runtime: Runtime,
    rules: RuleSet,
    deliveries: Iterable[QueuedDelivery],
    error_class: str,
    error: str = "",
    delay: float | None = None,
) -> list[QueuedDelivery]:
    """End the attempts of consumers that did not acknowledge; return the deliveries whose attempt ended.

    A delivery is visible again after `delay` seconds, or if it is None after the delay of its target's retry policy. It
    is dead if that policy allows no further attempt.
    """
    now = runtime.ledger.now()
    ends = []
    for each in deliveries:
        rule = rules.rules.get(each.rule)
        target = rule.destinations.get(each.target) if rule is not None else None
        ended_at = min(now, each.visible_at)
        attempt = EndedAttempt(each.attempts, each.received_at or ended_at, ended_at, error_class, error)
        policy = None if target is None else target.retry
        ends.append(_end_attempt(each, attempt, policy, delay))
    return runtime.ledger.queues.end_attempts(ends)


def _end_attempt(
    delivery: QueuedDelivery, attempt: EndedAttempt, policy: RetryPolicy | None, delay: float | None
) -> AttemptEnd:
    if policy is None:  # the rule was removed, so the books will decide
        return AttemptEnd(delivery, attempt, attempt.ended_at)
    if attempt.number > policy.max_retries:
        what = f"{attempt.error_class}: {attempt.error}" if attempt.error else attempt.error_class
        detail = f"{what}, attempt {attempt.number} of {policy.max_retries + 1}"
        return AttemptEnd(delivery, attempt, attempt.ended_at, ("maximum_retry_attempts", detail))
    wait = delay_seconds(policy, attempt.number, random.random()) if delay is None else delay
    return AttemptEnd(delivery, attempt, attempt.ended_at + timedelta(seconds=wait))


def end_expired_attempts(runtime: Runtime, rules: RuleSet, targets: Collection[tuple[str, str]] | None = None) -> None:
    """End the attempts whose visibility timeout is over, at most 1,000 of all targets or of each of `targets`.

    `rules` has the rules of these targets: an attempt of a rule that it lacks ends as one of a removed rule.
    """
    found = runtime.ledger.queues.expired(_EXPIRED_AT_ONCE, targets)
    if found:
        end_attempts(runtime, rules, found, VISIBILITY_EXPIRED)


def tend_queues(runtime: Runtime, rules: RuleSet) -> None:
    """End attempts whose visibility timeout is over, and make deliveries due that consumers have finished."""
    end_expired_attempts(runtime, rules)
    runtime.ledger.queues.make_finished_due(runtime.ledger.now())
