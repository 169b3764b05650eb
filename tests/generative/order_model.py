"""Models the product around `eventbridge.policy.ordering` with lists: batches, pending rows, leases, pushes in steps.

It asserts that no delivery overtakes another one of its key, or is sent while another one of its key may still arrive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from eventbridge.model.outcome import NOT_BEFORE, DeadLettered, Delivered, Outcome, Response, RetryAt
from eventbridge.model.partition import Partition, Position, Span
from eventbridge.policy.ordering import (
    BEHIND_ITS_KEY,
    BLOCKED,
    RELEASED,
    SINGLE_KEY,
    SKIPPED,
    DeliveriesByKey,
    Open,
    delivery_on_hold_at,
    is_due_for_renewal,
    is_marked,
    last_start,
    lease_until,
    may_block,
    on_hold_at,
    shard_of,
    spans_of,
)
from eventbridge.policy.response_to_outcome import RetryTerms, decide, expired, too_early
from eventbridge.rules.model import RetryPolicy

PARTITIONS = [Partition("orders", "", number) for number in range(2)]
#: The first two keys are in the same shard.
KEYS = ['"a"', '"b"', "17"]

_TIMEOUT = 30.0
_POLICY = RetryPolicy.from_name("EXPONENTIAL_DECAY_RETRY")
_IN_FLIGHT = 2
#: A push makes a retry itself if it is due within this time.
_LINGER = timedelta(seconds=2)


@dataclass(frozen=True)
class Unknown:
    """No push recorded the outcome of a delivery, because none sent it or the one that did died."""


@dataclass(eq=False)
class Delivery:
    """One delivery and what the ledger and the store record about it."""

    key: str
    position: Position
    arrived_at: datetime
    not_before: datetime | None
    attempts: int = 0
    note: str = ""


@dataclass(eq=False)
class Row:
    """A pending row; `taken` is true while a batch has it."""

    deliveries: list[Delivery]
    shard: int
    spans: tuple[Span, ...]
    due_at: datetime
    attempts: int
    hold_reason: str
    taken: bool = False

    @property
    def is_head(self) -> bool:
        """Whether its deliveries are the first of their keys."""
        return self.attempts > 0 or delivery_on_hold_at(self.hold_reason) is not None or is_marked(self.hold_reason)


@dataclass(eq=False)
class Batch:
    """A batch's deliveries by shard; `rows` are the pending rows of a retry batch. Outcomes are durable."""

    shards: dict[int, list[Delivery]]
    rows: list[Row]
    outcomes: dict[Delivery, tuple[Outcome | Unknown, int]] = field(default_factory=dict)
    settled: bool = False


@dataclass(eq=False)
class Push:
    """A push of one shard; `received` has unrecorded responses, `flying` the requests without a response."""

    batch: Batch
    shard: int
    lease: datetime | None = None
    open: Open = field(default_factory=Open)
    tried: list[Row] = field(default_factory=list)  # others' rows that had been tried and were pending when it read
    turns: DeliveriesByKey[Delivery] = field(default_factory=lambda: DeliveriesByKey([]))
    due: dict[Delivery, datetime] = field(default_factory=dict)
    tries: dict[Delivery, int] = field(default_factory=dict)
    received: dict[Delivery, tuple[Outcome | Unknown, int]] = field(default_factory=dict)
    flying: list[Delivery] = field(default_factory=list)
    unclear: bool = False
    overslept: bool = False  # its lease has expired once


class OrderModel:
    """One ordered target; if `strict`, it dead-letters nothing and has a single key."""

    def __init__(self, *, strict: bool) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.strict = strict
        self.published: dict[Partition, list[Delivery]] = {partition: [] for partition in PARTITIONS}
        self.done: set[Delivery] = set()
        self.pushes: list[Push] = []
        self.normal: Batch | None = None
        self._taken_until = dict.fromkeys(PARTITIONS, 0)
        self._retries: list[Batch] = []
        self.rows: list[Row] = []
        self._leases: dict[int, tuple[Push, datetime]] = {}
        self._flights: dict[Delivery, datetime] = {}  # the time until which a request may arrive

    @property
    def batches(self) -> list[Batch]:
        """The batches in progress."""
        return [*self._retries, *([self.normal] if self.normal is not None else [])]

    @property
    def on_hold(self) -> list[Row]:
        """The rows that block the rule."""
        return [row for row in self.rows if delivery_on_hold_at(row.hold_reason) is not None and not row.taken]

    @property
    def left(self) -> list[Delivery]:
        """The deliveries that have been neither delivered nor dead-lettered."""
        return [each for events in self.published.values() for each in events if each not in self.done]

    def publish(self, key: str, partition: Partition, not_before: datetime | None = None) -> None:
        """Publish an event."""
        events = self.published[partition]
        position = Position(partition, len(events))
        events.append(Delivery(SINGLE_KEY if self.strict else key, position, self.now, not_before))

    def plan(self, most: int) -> None:
        """Plan a normal batch of at most `most` events of each partition."""
        shards: dict[int, list[Delivery]] = defaultdict(list)
        for partition, events in self.published.items():
            for each in events[self._taken_until[partition] : self._taken_until[partition] + most]:
                shards[shard_of(each.key)].append(each)
                self._taken_until[partition] += 1
        if shards:
            self.normal = Batch(dict(shards), [])

    def plan_retries(self, most: int) -> None:
        """Plan a retry batch of at most `most` rows, of shards without a push."""
        for shard in {row.shard for row in self.rows}:
            rows = [row for row in self.rows if row.shard == shard]
            if all(row.hold_reason == BEHIND_ITS_KEY and not row.taken for row in rows):
                self._release_shard(shard)
        busy = {shard for shard, (_, until) in self._leases.items() if until > self.now}
        busy |= {row.shard for row in self.rows if row.taken}
        free = [row for row in self.rows if self._is_due(row) and row.shard not in busy]
        chosen = sorted(free, key=lambda row: (row.attempts == 0 and not is_marked(row.hold_reason), row.due_at))[:most]
        shards: dict[int, list[Delivery]] = defaultdict(list)
        for row in chosen:
            row.taken = True
            for each in row.deliveries:
                each.note = row.hold_reason if is_marked(row.hold_reason) else ""
                shards[row.shard].append(each)
        if chosen:
            self._retries.append(Batch(dict(shards), chosen))

    def release(self, note: str) -> None:
        """Record an operator's decision, RELEASED or SKIPPED, on all rows that block the rule."""
        for row in self.on_hold:
            row.hold_reason, row.due_at = note, self.now

    def begin_push(self, batch: Batch, shard: int) -> Push:
        """Begin a push; another push of the same shard may be running or asleep."""
        self.pushes.append(Push(batch, shard))
        return self.pushes[-1]

    def step(self, push: Push, response: Callable[[Delivery], str], *, write: bool) -> None:
        """Let a push take its responses, record them if it is time to, and send the next deliveries."""
        if push.lease is None:
            if not self._take_lease(push):
                return
            self._read(push)
        for each in push.flying:
            self._record_response(push, each, response(each))
        push.flying = []
        ready = self._ready(push)
        soon = self.now + _LINGER
        over = write and not ready and all(push.due[each] > soon for _, each in push.turns.heads())
        if over:
            for key, each in push.turns.heads():
                push.turns.next(key)
                self._block(push, key, push.due[each])
        if write and not self._write(push):
            self._end(push, unclear=True)  # its claim is stale
        elif over:
            self._end(push, unclear=push.unclear)
        elif ready:
            self._send_all(push, ready)

    def commit(self, batch: Batch) -> None:
        """Settle the outcomes of a batch and make open deliveries pending; its pushes may still be running."""
        batch.settled = True
        groups: dict[tuple[int, datetime, int, str], list[Delivery]] = defaultdict(list)
        progress: set[int] = set()
        for shard, deliveries in batch.shards.items():
            for each in deliveries:
                outcome, each.attempts = batch.outcomes.get(each, (Unknown(), each.attempts))
                if isinstance(outcome, RetryAt | Unknown):
                    due_at = outcome.due_at if isinstance(outcome, RetryAt) else self.now
                    groups[shard, due_at, each.attempts, self._held(batch, each, outcome)].append(each)
                elif batch.rows:
                    progress.add(shard)
        self.rows = [row for row in self.rows if row not in batch.rows]
        for (shard, due_at, attempts, held), some in groups.items():
            spans = spans_of(each.position for each in some)
            self.rows.append(Row(some, shard, spans, due_at, attempts, held))
        for shard in progress:
            self._release_shard(shard)
        if batch is self.normal:
            self.normal = None
        else:
            self._retries.remove(batch)

    def _is_due(self, row: Row) -> bool:
        return (not row.hold_reason or is_marked(row.hold_reason)) and not row.taken and row.due_at <= self.now

    def _release_shard(self, shard: int) -> None:
        for row in self.rows:
            if row.hold_reason == BEHIND_ITS_KEY and not row.taken and row.shard == shard:
                row.hold_reason, row.due_at = "", self.now

    def _held(self, batch: Batch, each: Delivery, outcome: Outcome | Unknown) -> str:
        reason = _reason(outcome)
        if isinstance(outcome, Unknown) or reason in (BLOCKED, NOT_BEFORE):
            if each.note:
                return each.note
            return BEHIND_ITS_KEY if batch.rows and reason == BLOCKED else ""
        ends = ("maximum_retry_attempts", "maximum_event_age", "non_retryable")
        return (
            on_hold_at(f"{each.position.partition.partition_id}-{each.position.offset}")
            if self.strict and reason in ends
            else ""
        )

    def _take_lease(self, push: Push) -> bool:
        holder, until = self._leases.get(push.shard, (push, self.now))
        if holder is not push and until > self.now:
            return False
        push.lease = lease_until(self.now, _TIMEOUT)
        self._leases[push.shard] = push, push.lease
        return True

    def _read(self, push: Push) -> None:
        """Read, under the push's lease, what is open in addition to the push's own deliveries."""
        batch = push.batch
        hand, failed = [], []
        for each in batch.shards[push.shard]:
            outcome, push.tries[each] = batch.outcomes.get(each, (Unknown(), each.attempts))
            if isinstance(outcome, Unknown) or _reason(outcome) == BLOCKED:
                hand.append(each)
            elif isinstance(outcome, RetryAt):
                failed.append(each)
        push.tried = [row for row in self.rows if row.attempts > 0 and row not in batch.rows]
        going = spans_of(each.position for each in hand)
        for row in self.rows:
            other = row.shard == push.shard and row not in batch.rows
            if other and (row.is_head or may_block(row.spans, going)):
                for each in row.deliveries:
                    push.open.add(each.key, each.position, head=row.is_head)
        for each in failed:
            push.open.add(each.key, each.position, head=True)
        push.turns = DeliveriesByKey((each.key, each.position, each) for each in hand)

    def _ready(self, push: Push) -> list[Delivery]:
        ready = []
        for key, first in push.turns.heads():
            each: Delivery | None = first
            while each is not None and (outcome := self._without_sending(push, each)) is not None:
                self._hear(push, each, outcome)
                push.turns.next(key)
                if isinstance(outcome, RetryAt) and outcome.reason != BLOCKED:
                    self._block(push, key, outcome.due_at)
                each = push.turns.head(key)
            if each is not None and push.due.get(each, self.now) <= self.now:
                ready.append(each)
        return ready[:_IN_FLIGHT]

    def _without_sending(self, push: Push, each: Delivery) -> Outcome | None:
        note = each.note if push.tries[each] == each.attempts else ""
        if note == SKIPPED:
            return DeadLettered("non_retryable", "skipped")
        if push.tries[each] == 0 and (reason := push.open.reason_to_wait(each.key, each.position)):
            return RetryAt(self.now + timedelta(seconds=1), reason)
        if (early := too_early(each.not_before, None, self.now)) is not None:
            return early
        end = expired(_POLICY, each.not_before or each.arrived_at, 0.0, self.now)
        return None if end is None or note == RELEASED else self._kept(end)

    def _kept(self, end: DeadLettered) -> Outcome:
        return RetryAt(self.now, end.reason) if self.strict else end

    def _send_all(self, push: Push, ready: list[Delivery]) -> None:
        assert push.lease is not None
        push.overslept = push.overslept or push.lease <= self.now
        if is_due_for_renewal(push.lease, self.now, _TIMEOUT) and not self._take_lease(push):
            self._end(push, unclear=True)
        elif self.now <= last_start(push.lease, _TIMEOUT):
            for each in ready:
                self._send(push, each)

    def _send(self, push: Push, each: Delivery) -> None:
        earlier = self.published[each.position.partition][: each.position.offset]
        open_ones = [other.position for other in earlier if other.key == each.key and other not in self.done]
        assert open_ones == [], f"{each} overtakes {open_ones}"
        # a row's delivery may have been delivered a moment ago without a record
        tried = (other for row in push.tried if row in self.rows for other in row.deliveries if other not in self.done)
        heads = [other.position for other in tried if other.key == each.key and other is not each]
        assert heads == [] or push.overslept or push.tries[each] > 0, f"{each} does not wait for {heads}"
        assert each.not_before is None or each.not_before <= self.now, f"{each} goes too early"
        self._flights = {other: until for other, until in self._flights.items() if until > self.now}
        beside = [other for other in self._flights if other.key == each.key]
        assert beside == [], f"{each} goes while {beside} may still arrive"
        self._flights[each] = self.now + timedelta(seconds=_TIMEOUT)
        push.flying.append(each)

    def _record_response(self, push: Push, each: Delivery, how: str) -> None:
        """Take the response to a request, or the fact that there is none."""
        push.tries[each] += 1
        attempts, begins = push.tries[each], each.not_before or each.arrived_at
        if how == "interrupted":
            push.unclear = True  # it may still arrive
            sent_at = self._flights.get(each, self.now) - timedelta(seconds=_TIMEOUT)
            response = Response(False, sent_at, 1.0, error_class="Interrupted")
        else:
            late = self._flights.pop(each, self.now) <= self.now
            response = _response("timeout" if late else how, self.now)
        outcome = decide(
            response,
            RetryTerms(_POLICY, _TIMEOUT),
            attempts=attempts,
            arrived_at=begins,
            on_hold_seconds=0,
            now=self.now,
            draw=0.5,
        )
        ended = isinstance(outcome, DeadLettered)
        if isinstance(outcome, DeadLettered):
            outcome = self._kept(outcome)
        self._hear(push, each, outcome)
        if isinstance(outcome, RetryAt) and not ended and outcome.due_at <= self.now + _LINGER:
            push.due[each] = outcome.due_at
        else:
            push.turns.next(each.key)
            if isinstance(outcome, RetryAt):
                self._block(push, each.key, outcome.due_at)

    def _block(self, push: Push, key: str, due_at: datetime) -> None:
        for each in push.turns.close(key):
            self._hear(push, each, RetryAt(max(due_at, self.now), BLOCKED))

    def _hear(self, push: Push, each: Delivery, outcome: Outcome) -> None:
        push.received[each] = outcome, push.tries[each]
        if isinstance(outcome, Delivered | DeadLettered):
            self.done.add(each)

    def _write(self, push: Push) -> bool:
        """Record the received responses as a segment; False if the push's claim is stale."""
        if push.batch.settled:
            return False
        for each, (outcome, attempts) in push.received.items():
            known, before = push.batch.outcomes.get(each, (Unknown(), 0))
            best = known if isinstance(known, Delivered | DeadLettered) else outcome
            push.batch.outcomes[each] = best, max(before, attempts)
        push.received = {}
        return True

    def _end(self, push: Push, *, unclear: bool) -> None:
        self.pushes.remove(push)
        holder, _ = self._leases.get(push.shard, (None, self.now))
        if holder is push and not unclear:
            del self._leases[push.shard]


def _reason(outcome: Outcome | Unknown) -> str:
    return outcome.reason if isinstance(outcome, RetryAt) else ""


def _response(how: str, now: datetime) -> Response:
    code = int(how) if how.isdigit() else None
    return Response(how == "200", now, 1.0, code=code, error_class=None if code is not None else "Timeout")
