"""Sends the deliveries of an ordered target in a chunk: each shard has its own run, and the deliveries of one key are
sent one after the other."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from eventbridge.delivery.ordered_backlog import open_deliveries
from eventbridge.delivery.outstanding import Item, request_of
from eventbridge.delivery.per_delivery import RequestFeed
from eventbridge.delivery.rows import unsent_row
from eventbridge.delivery.run import SLEEP_SECONDS, Send, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.delivery.steps import Sleep, Steps, flush, not_flushed
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.outcome import INTERRUPTED, DeadLettered, Outcome, Response, RetryAt
from eventbridge.model.partition import Partition, Position
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.delivery_windows import dead_letter_if_late, deadline_of, missed
from eventbridge.policy.ordering import (
    BLOCKED,
    DEFERRED_MATCH_FIRST,
    POSITION_COLUMNS,
    RELEASED,
    SKIPPED,
    DeliveriesByKey,
    Open,
    is_due_for_renewal,
    is_marked,
    last_start,
    lease_until,
    position_of,
    shard_of,
)
from eventbridge.policy.response_to_outcome import age_begins, expired, too_early
from eventbridge.rules import Target as TargetRule
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows
from eventbridge.targets.steps import BlockingCall

_COLUMNS = [
    "delivery_id", "arrived_at", "payload", "content_type", "headers", "order_key", "failure", "not_before",
    "published_at",
    *POSITION_COLUMNS,
]  # fmt: skip


class OrderedDeliveries:
    """The deliveries of one shard in a chunk. `failed` deliveries are not sent, but block later ones of their keys."""

    def __init__(
        self, shard: Shard, items: Sequence[OrderedItem], failed: Sequence[OrderedItem], in_flight: int
    ) -> None:
        self.total = len(items)
        self._shard = shard
        self._items = items
        self._failed = failed
        self._in_flight = in_flight

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send deliveries until each of them has a response or must wait, the budget is spent, or the run must end."""
        return OrderedRounds(run, send, self._shard, self._in_flight).deliver(self._items, self._failed)


def ordered_deliveries(
    runtime: Runtime,
    batch: Batch,
    chunk: Chunk,
    pieces: Sequence[Piece],
    done: Mapping[bytes, BestOutcome],
    spec: TargetRule,
) -> list[OrderedDeliveries]:
    """Return the deliveries of an ordered target in a chunk, by shard. The shards share the target's in-flight limit.

    Deliveries without an order key, routed before the target was ordered, are not included.
    """
    items: dict[int, list[OrderedItem]] = defaultdict(list)
    failed: dict[int, list[OrderedItem]] = defaultdict(list)
    for item in ordered_items(runtime, batch, pieces, spec.deliver_within_seconds):
        seen = done.get(item.delivery_id)
        shard = shard_of(item.key)
        if seen is None or seen.status == "unknown" or seen.reason in (BLOCKED, DEFERRED_MATCH_FIRST):
            items[shard].append(item)
        elif seen.status == "retry_scheduled":
            failed[shard].append(item)
    gone = threading.Event()
    in_flight = max(1, spec.max_in_flight // max(1, len(items)))
    round_slots = threading.Semaphore(spec.max_in_flight // in_flight)
    return [
        OrderedDeliveries(
            Shard(runtime, batch, chunk, spec, pieces[0].rule, shard, gone, round_slots),
            found,
            failed[shard],
            in_flight,
        )
        for shard, found in sorted(items.items())
    ]


def ordered_items(
    runtime: Runtime, batch: Batch, pieces: Iterable[Piece], within_seconds: float | None
) -> Iterator[OrderedItem]:
    """Yield the deliveries of pieces that have an order key."""
    taken = {row.pending_id: row for row in runtime.ledger.pending.list_taken_by(batch.batch_id)}
    for piece in pieces:
        for row in read_rows(runtime.store, piece.file, piece.rows, columns=_COLUMNS).to_pylist():
            if row["order_key"] is not None:
                made = _item(piece, row, taken.get(piece.pending_id))
                made.deadline_at = deadline_of(row["published_at"], within_seconds)
                yield made


def _item(piece: Piece, row: dict[str, Any], pending: PendingDeliveries | None) -> OrderedItem:
    return OrderedItem(
        delivery_id=row["delivery_id"],
        rule=piece.rule,
        target=piece.target,
        request=request_of(row),
        arrived_at=age_begins(row["arrived_at"], row["not_before"]),
        attempts=piece.attempts,
        on_hold_seconds=piece.on_hold_seconds,
        not_before=row["not_before"],
        key=row["order_key"],
        position=position_of(row),
        failure=row["failure"],
        note=pending.hold_reason if pending is not None and is_marked(pending.hold_reason) else "",
        reason=pending.reason if pending is not None else "",
    )


#: The seconds between two checks by a shard for a free slot in its target's in-flight limit, which other shards share.
_ROUND_SLOT_SECONDS = 0.02
#: The number of seconds for which a delivery is deferred if it must wait for events that have not been routed yet.
DEFERRED_MATCH_SECONDS = 10.0


class OrderedRounds:
    """Sends the deliveries of one shard in a chunk.

    A delivery is sent once every earlier one of its key has a final status. A delivery that fails, or may not be sent
    yet, blocks its key; other keys continue. A delivery that must wait is reported as `retry_scheduled` without an
    attempt. No request that might outlast the shard's lease is started.
    """

    def __init__(self, run: TargetRun, send: Send, shard: Shard, in_flight: int) -> None:
        self._run = run
        self._send_by = send
        self._shard = shard
        self._in_flight = in_flight
        self._policy = run.settings.policy
        self._window = run.settings.window
        self._until = run.until
        self._clock = run.clock
        self._holds_failures = shard.spec.errors_tolerance == "none"
        self._timeout = shard.spec.timeout_seconds
        self._lease = run.until
        self._is_unclear = False  # whether a request may still arrive after the end of the run, which keeps the lease
        self._open = Open()
        self._sent: list[tuple[OrderedItem, datetime]] = []
        run.in_flight = lambda: list(self._sent)

    def deliver(self, items: Sequence[OrderedItem], failed: Sequence[OrderedItem]) -> Steps[None]:
        """Send deliveries until each of them has a response or must wait, the budget is spent, or the run must end."""
        run, shard = self._run, self._shard
        if not (yield from self._wait_for_lease()):
            run.report.spent = not run.is_stopping
            return
        positions = [item.position for item in items]
        target = (shard.rule, shard.spec.name)
        self._open = yield from _call_outside_loop(
            partial(open_deliveries, shard.runtime, shard.batch, target, shard.number, positions, shard.own)
        )
        for item in failed:
            self._open.add(item.key, item.position, head=True)
        turns = DeliveriesByKey((item.key, item.position, item) for item in items)
        while turns and not run.is_stopping and not self._is_closed() and self._clock() < run.starts_until:
            ready = self._sendable(turns)
            if not turns:
                break
            if not (yield from (self._send_some(turns, ready) if ready else self._sleep_until_due(turns))):
                break
        yield from self._end(turns)

    def _sendable(self, turns: DeliveriesByKey[OrderedItem]) -> list[OrderedItem]:
        """Return the deliveries that may be sent now, at most one per key; report those whose outcome is decided
        without sending them."""
        now = self._clock()
        ready: list[OrderedItem] = []
        for key, first in turns.heads():
            item: OrderedItem | None = first
            while item is not None and (outcome := self._outcome_without_sending(item, now)) is not None:
                self._run.write(item, outcome, None)
                turns.next(key)
                if isinstance(outcome, RetryAt) and outcome.reason not in (BLOCKED, DEFERRED_MATCH_FIRST):
                    self._block(turns, key, outcome.due_at)
                item = turns.head(key)
            if item is not None and (item.due_at is None or item.due_at <= now):
                ready.append(item)
        return ready[: self._in_flight]

    def _outcome_without_sending(self, item: OrderedItem, now: datetime) -> Outcome | None:
        """Return the outcome of a delivery that must not be sent now or at all; None if it may be sent."""
        if item.note == SKIPPED:
            return DeadLettered(item.reason or "non_retryable", "skipped by `eventbridge rules release --skip`")
        if item.failure is not None:
            return self._end_or_hold(DeadLettered("transform_failed", item.failure), now)
        if (late := missed(item.deadline_at, now)) is not None:
            return late  # even if earlier deliveries of its key are open, because it is never sent
        if item.attempts == 0 and (reason := self._open.reason_to_wait(item.key, item.position)):
            due_at = now + timedelta(seconds=1.0 if reason == BLOCKED else DEFERRED_MATCH_SECONDS)
            return RetryAt(due_at, reason)
        if (early := too_early(item.not_before, self._window, now)) is not None:
            return dead_letter_if_late(early, item.deadline_at)
        if item.note == RELEASED:
            return None  # an operator released it, so its age does not count
        end = expired(self._policy, item.arrived_at, item.on_hold_seconds, now)
        return None if end is None else self._end_or_hold(end, now)

    def _end_or_hold(self, end: DeadLettered, now: datetime) -> Outcome:
        """Return `end` or, if the target has `errors_tolerance: none`, a retry, which settlement puts on hold."""
        return RetryAt(now, end.reason) if self._holds_failures else end

    def _send_some(self, turns: DeliveriesByKey[OrderedItem], ready: Sequence[OrderedItem]) -> Steps[bool]:
        """Send the deliveries that the in-flight limit and the rate allow now; return False if this push can send no
        more."""
        if not self._shard.round_slots.acquire(blocking=False):
            yield Sleep(_ROUND_SLOT_SECONDS, self._run.settings.stop)
            return True
        try:
            paced = yield from self._take_tokens(ready)
            if not paced:
                return (yield from self._sleep_until_token())
            if not (yield from self._renew()):
                return False
            yield from self._send(turns, paced)
            return True
        finally:
            self._shard.round_slots.release()

    def _send(self, turns: DeliveriesByKey[OrderedItem], ready: Sequence[OrderedItem]) -> Steps[None]:
        target, run = self._send_by.target, self._run
        until = min(self._until, last_start(self._lease, self._timeout))
        feed = RequestFeed(
            [replace(item.request, index=index) for index, item in enumerate(ready)], lambda *_: not run.is_stopping
        )
        responses: list[tuple[OrderedItem, Response]] = []
        unsure = True
        sent_at = self._clock()
        self._sent = [(item, sent_at) for item in ready]
        try:
            with closing(self._send_by.deliver(feed, until)) as steps:
                for step in steps:
                    if isinstance(step, tuple):
                        index, response = step
                        run.report.sent += ready[index].due_at is None
                        responses.append((ready[index], response))
                    else:
                        yield step
                    if run.must_give_up:
                        break
            unsure = run.is_stopping and len(responses) < len(ready) - feed.left
        finally:
            self._is_unclear = self._is_unclear or unsure
        self._sent = []
        lost = flush(target)
        for item, response in responses:
            self._take(turns, item, response if lost is None else not_flushed(response, lost))
        if unsure:  # requests in flight may arrive, so they are recorded as sent
            responded = {item.delivery_id for item, _ in responses}
            for item in ready[: len(ready) - feed.left]:
                if item.delivery_id not in responded:
                    self._take(turns, item, run.interrupted_response(sent_at))

    def _take(self, turns: DeliveriesByKey[OrderedItem], item: OrderedItem, response: Response) -> None:
        run = self._run
        sample = run.retry_jitter.sample(response)
        now, draw = sample
        tried = replace(item, attempts=item.attempts + 1, note="")
        outcome: Outcome
        if response.error_class == INTERRUPTED:
            self._is_unclear, outcome = True, run.decide_outcome(tried, response, now, draw)
        else:
            run.judge(item.delivery_id, response, attempts=tried.attempts, at=sample)
            outcome = run.decide_outcome(tried, response, now, draw)
        ended = isinstance(outcome, DeadLettered)
        if isinstance(outcome, DeadLettered):
            if outcome.disable_target:
                run.report.gone = True
                self._shard.gone.set()
            outcome = self._end_or_hold(outcome, now)
        run.write(tried, outcome, response)
        if isinstance(outcome, RetryAt):
            if not ended and outcome.due_at < run.soon(now):
                turns.put_back(item.key, replace(tried, due_at=outcome.due_at))
            else:
                turns.next(item.key)
                self._block(turns, item.key, outcome.due_at)
        else:
            turns.next(item.key)

    def _block(self, turns: DeliveriesByKey[OrderedItem], key: str, due_at: datetime) -> None:
        """Report the remaining deliveries of a key as waiting until its first delivery is due again."""
        blocked = turns.close(key)
        now = self._clock()
        if blocked:
            self._run.report.retried += len(blocked)
            outcome = RetryAt(max(due_at, now), BLOCKED)
            self._run.settings.rows.put_all(unsent_row(item, outcome, now) for item in blocked)

    def _sleep_until_due(self, turns: DeliveriesByKey[OrderedItem]) -> Steps[bool]:
        """Wait briefly for the next retry; return False if none is due soon enough."""
        now = self._clock()
        due = min(item.due_at or now for _, item in turns.heads())
        if due >= self._run.soon(now):
            return False
        return (yield from self._run.sleep((due - now).total_seconds()))

    def _take_tokens(self, ready: Sequence[OrderedItem]) -> Steps[list[OrderedItem]]:
        """Take tokens for the first deliveries, as many as the target's rate allows now, and return these
        deliveries."""
        pace = self._run.pace
        paced: list[OrderedItem] = []
        for number, item in enumerate(ready):
            taken = pace.take(self._clock(), len(ready) - number)
            if not taken and pace.is_short:
                yield from _call_outside_loop(lambda: pace.fetch(self._clock()))
                taken = pace.take(self._clock(), len(ready) - number)
            if not taken:
                break
            paced.append(item)
        return paced

    def _sleep_until_token(self) -> Steps[bool]:
        """Wait briefly for the target's next token; return False if it comes too late to wait for."""
        now = self._clock()
        token_at = self._run.pace.next_at or now
        if not self._run.waits_for_token(token_at, now):
            return False
        return (yield from self._run.sleep((token_at - now).total_seconds()))

    def _end(self, turns: DeliveriesByKey[OrderedItem]) -> Steps[None]:
        run = self._run
        left = False
        for key, item in turns.heads():
            if item.due_at is None:
                left = True
            else:  # it was tried, and is due again later
                turns.next(key)
                self._block(turns, key, item.due_at)
        now = self._clock()
        stopped = self._shard.gone.is_set() or run.is_stopping or run.is_closed
        stopped = stopped or run.pause.end_at(now) is not None or run.pace.has_limited(now)
        run.report.spent = left and not stopped
        if not self._is_unclear:
            shard = self._shard
            end_lease = shard.runtime.ledger.order.release_lease
            yield from _call_outside_loop(partial(end_lease, shard.rule, shard.spec.name, shard.number, shard.holder))

    def _wait_for_lease(self) -> Steps[bool]:
        while not self._run.is_stopping and self._clock() < self._until:
            if (yield from self._take_lease()):
                return True
            yield Sleep(SLEEP_SECONDS, self._run.settings.stop)
        return False

    def _renew(self) -> Steps[bool]:
        """Renew the lease if it is due for renewal; return whether this push still has it."""
        if not is_due_for_renewal(self._lease, self._clock(), self._timeout):
            return True
        return (yield from self._take_lease())

    def _take_lease(self) -> Steps[bool]:
        shard = self._shard
        until = lease_until(self._clock(), self._timeout)
        take_lease = shard.runtime.ledger.order.acquire_lease
        taken = yield from _call_outside_loop(
            partial(take_lease, shard.rule, shard.spec.name, shard.number, shard.holder, until)
        )
        if taken:
            self._lease = until
        return bool(taken)

    def _is_closed(self) -> bool:
        return self._run.is_closed or self._shard.gone.is_set()


def _call_outside_loop(call: Callable[[], Any]) -> Steps[Any]:
    """Make a call to the ledger or the store outside the loop, and return its result."""
    blocking_call = BlockingCall(call)
    yield blocking_call
    return blocking_call.result()


_NOWHERE = Position(Partition("", "", 0), 0)


@dataclass(slots=True, eq=False)
class OrderedItem(Item):
    """A delivery with its order key and position.

    `failure` says why it has no payload, `note` is an operator's decision about it, and `reason` says why it was
    pending.
    """

    key: str = ""
    position: Position = _NOWHERE
    failure: str | None = None
    note: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Shard:
    """A shard of an ordered target in a chunk; all shards share `gone`, set once the target has responded with 410."""

    runtime: Runtime
    batch: Batch
    chunk: Chunk
    spec: TargetRule
    rule: str
    number: int
    gone: threading.Event
    round_slots: threading.Semaphore  # limits the simultaneous rounds of all shards of the target

    @property
    def holder(self) -> str:
        """The unique name of the lease's holder: this claim on this chunk."""
        return f"{self.batch.batch_id}/{self.chunk.chunk_id}/{self.chunk.claim}"

    @property
    def own(self) -> set[int]:
        """The ids of the chunk's pending rows."""
        return {piece.pending_id for piece in self.chunk.pieces if piece.pending_id is not None}
