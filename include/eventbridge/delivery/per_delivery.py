"""Sends deliveries one by one, in any order. The push itself makes the retries that are due soon."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from time import monotonic
from typing import overload

from eventbridge.delivery.admission import defer_paused
from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.run import Send, TargetRun
from eventbridge.delivery.steps import Steps, flush, must_flush, not_flushed
from eventbridge.model.outcome import DELIVERED, INTERRUPTED, Outcome, Response, RetryAt
from eventbridge.policy.delivery_windows import missed
from eventbridge.policy.response_to_outcome import expired
from eventbridge.targets.protocol import Request, Target
from eventbridge.targets.steps import BlockingCall, Step


class SingleDeliveries:
    """Sends the items of one target. A retry that is due soon needs no round trip through the ledger."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.total = len(items)
        self._items = items

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send items until each of them has a response or must wait, the budget is spent, or the run must end."""
        return Rounds(run, send, self._items).deliver()


class Rounds:
    """Sends the items of one run in rounds. A round consists of all items that may be sent when it begins."""

    def __init__(self, run: TargetRun, send: Send, items: Iterable[Item]) -> None:
        self._run = run
        self._send = send
        self._policy = run.settings.policy
        self._until = run.until
        self._clock = run.clock
        self._waiting = list(items)
        self._item_by_index = {item.request.index: item for item in self._waiting}
        self._unflushed: list[tuple[Item, Response]] = []
        self._responded: set[int] = set()  # in the current round
        self._sent_at: dict[int, float] = {}  # when the requests in flight were sent, by the monotonic clock
        # The indices of requests that were sent in a batch request but got no response of their own; they are sent
        # again.
        self._unjudged: set[int] = set()
        self._interrupted = False
        run.in_flight = self._items_in_flight

    def deliver(self) -> Steps[None]:
        """Send items until each of them has a response or must wait, the budget is spent, or the run must end."""
        run = self._run
        while self._waiting and not self._is_over():
            ready = self._ready()
            if ready:
                yield from self._round(ready)
            elif self._waiting and not (yield from self._sleep()):
                break
        now = self._clock()
        self._defer_paused(now)
        run.report.held_up |= run.pace.has_limited(now)  # even if the last tokens went to requests in flight
        run.report.spent = run.is_nearly_spent(now) and not run.is_refused and self._has_unsettled_work()

    def _defer_paused(self, now: datetime) -> None:
        """Defer the deliveries that were not tried if the target asked for a pause."""
        run = self._run
        paused_until = run.pause.end_at(now)
        if paused_until is not None and not run.is_stopping and not run.is_refused:
            run.report.held_up = True
            self._waiting = defer_paused(self._waiting, paused_until, now, self._policy, run.settings.rows)

    def _break_off(self) -> None:
        """Record requests in flight as sent. The target may have accepted them, so a retry waits until the timeout
        has passed."""
        for item, started_at in self._items_in_flight():
            self._decide(item, self._run.interrupted_response(started_at))
        self._sent_at.clear()

    def _items_in_flight(self) -> list[tuple[Item, datetime]]:
        """Return the items in flight and when each was sent; any thread may call it."""
        now, mark = self._clock(), monotonic()
        sent = list(self._sent_at.items())
        return [(self._item_by_index[index], now - timedelta(seconds=mark - sent_at)) for index, sent_at in sent]

    def decide_all(self, items: Iterable[Item], response: Response) -> None:
        """Decide the outcomes of items that were sent outside these rounds and got one common response."""
        for item in items:
            self._item_by_index[item.request.index] = item
            self._decide(item, response)

    def take_up(self, items: Iterator[Item]) -> None:
        """Add items to send."""
        taken = list(items)
        self._waiting += taken
        self._item_by_index.update((item.request.index, item) for item in taken)

    def _ready(self) -> list[Item]:
        now = self._clock()
        ready = [item for item in self._waiting if item.due_at is None or item.due_at <= now]
        self._waiting = [item for item in self._waiting if item.due_at is not None and item.due_at > now]
        alive = []
        for item in ready:
            if not self._ends_unsent(item, now):
                alive.append(item)
        return self._admitted(alive)

    def _ends_unsent(self, item: Item, now: datetime) -> bool:
        """Dead-letter an item that is too late or too old to be sent; return whether it was dead-lettered."""
        end = missed(item.deadline_at, now) or expired(self._policy, item.arrived_at, item.on_hold_seconds, now)
        if end is not None:
            self._run.breaker.record_abandoned(item.delivery_id, now)
            self._run.write(item, end, None)
        return end is not None

    def _admitted(self, alive: list[Item]) -> list[Item]:
        """Return the items to send in the next round, retries first; the others continue to wait."""
        if alive and not self._run.pace.may_ask(self._clock()):
            self._waiting += alive
            return []
        report = self._run.report
        alive.sort(key=lambda item: item.due_at is None)
        room = self._run.breaker.capacity(self._clock())
        if room is None:
            report.held_up = False
            return alive
        tried = sum(item.due_at is not None for item in alive)
        report.held_up = report.held_up or len(alive) > tried + room
        self._waiting += alive[tried + room :]
        return alive[: tried + room]

    def _round(self, ready: list[Item]) -> Steps[None]:
        target, run = self._send.target, self._run
        feed = RequestFeed([item.request for item in ready], self._may_send)
        responded = self._responded = set()
        with closing(self._send.deliver(feed, self._until)) as steps:
            yield from self._receive(target, steps)
        self._settle_responses(target)
        if run.is_stopping:  # requests without a response are recorded as sent
            responded.update(self._sent_at)
            self._break_off()
        self._sent_at.clear()
        taken = ready[: len(ready) - feed.left]
        if len(responded) < len(taken):
            self._unjudged.update({item.request.index for item in taken} - responded)
        # unsent items come first in the next round if there is time, else they get no outcome
        self._waiting = [item for item in ready if item.request.index not in responded] + self._waiting

    def _receive(self, target: Target, steps: Generator[Step, None, None]) -> Steps[None]:
        """Process responses until each request has one or the run stops waiting for them."""
        run = self._run
        for step in steps:
            if isinstance(step, tuple):
                index, response = step
                self._sent_at.pop(index, None)
                self._unflushed.append((self._item_responded(index), response))
                if must_flush(target, len(self._unflushed), self._unflushed[0][1], response):
                    self._settle_responses(target)
            else:
                yield self._fetch_tokens() if step is None and run.pace.is_short else step
            if run.must_give_up and not target.more_of_response:
                break

    def _item_responded(self, index: int) -> Item:
        self._responded.add(index)
        return self._item_by_index[index]

    def _fetch_tokens(self) -> BlockingCall:
        return BlockingCall(lambda: self._run.pace.fetch(self._clock()))

    def _may_send(self, request: Request, left: int) -> bool | None:
        """Return whether a request may be sent now, or None if that is not known yet and the target must ask again.

        `left` is the number of unsent requests of the round, including this one.
        """
        run = self._run
        if run.is_stopping or run.is_closed or self._clock() >= run.starts_until:
            return False
        item = self._item_by_index[request.index]
        if item.deadline_at is not None and missed(item.deadline_at, self._clock()) is not None:
            return False  # the round ends, and the next one dead-letters late items and continues with the rest
        fresh = item.due_at is None
        if not run.admits(self._clock(), len(self._waiting) + left, fresh=fresh):
            if run.pace.is_short:
                return None
            run.report.held_up = True
            return False
        run.report.sent += fresh and request.index not in self._unjudged
        self._sent_at[request.index] = monotonic()
        return True

    def _settle_responses(self, target: Target) -> None:
        batch, self._unflushed = self._unflushed, []
        if not batch:
            return
        lost = flush(target)
        for item, response in batch:
            self._decide(item, response if lost is None else not_flushed(response, lost))

    def _decide(self, item: Item, response: Response) -> None:
        run = self._run
        item.attempts += 1
        if response.accepted and run.breaker.is_unlimited:  # the usual case, and faster than the rest
            run.accept(item, response)
            return
        sample = run.retry_jitter.sample(response)
        now, draw = sample
        outcome: Outcome = DELIVERED
        self._interrupted = self._interrupted or response.error_class == INTERRUPTED
        if run.settings.shadow:
            run.breaker.record_accepted(1, now)
        elif response.error_class == INTERRUPTED:
            outcome = run.decide_outcome(item, response, now, draw)
        else:
            outcome = run.decide_outcome(item, response, now, draw)
            again = isinstance(outcome, RetryAt) and outcome.due_at < run.soon(now)
            run.judge(item.delivery_id, response, attempts=item.attempts, at=sample, again=again)
        run.write(item, outcome, response)
        if isinstance(outcome, RetryAt):
            self._again(item, outcome.due_at)

    def _again(self, item: Item, due_at: datetime) -> None:
        """Keep an item that will be retried."""
        item.due_at = due_at
        self._waiting.append(item)

    def _sleep(self) -> Steps[bool]:
        """Wait briefly for an item to be due; return False if waiting would take too long or delay other targets."""
        now, next_at = self._clock(), self._run.pace.next_at
        due = min((item.due_at for item in self._waiting if item.due_at is not None), default=self._until)
        if next_at is not None and next_at > now:
            due = next_at if any(item.due_at is None for item in self._waiting) else max(due, next_at)
        wait = (min(due, self._until) - now).total_seconds()
        return (yield from self._run.sleep(wait))

    def _is_over(self) -> bool:
        run = self._run
        if run.is_stopping or run.is_closed:
            return True
        now = self._clock()
        soon = run.soon(now)
        token_at = run.pace.next_at
        if token_at is not None and not run.waits_for_token(token_at, now):
            run.report.held_up = True
            return True
        return now >= run.starts_until or all(item.due_at is not None and item.due_at >= soon for item in self._waiting)

    def _has_unsettled_work(self) -> bool:
        # Items that are waiting for a token are not late.
        late = [] if self._run.pace.has_limited(self._clock()) else self._waiting
        return self._interrupted or any(item.due_at is None or item.due_at <= self._until for item in late)


class RequestFeed(Sequence[Request]):
    """A sequence of requests. While the first ones are in flight, `may_send` can withhold the rest.

    `may_send` is called with the request and the number of requests left, including this one. A target iterates over
    the requests once. When `may_send` returns False, the iteration ends, and so does the round once the target has the
    responses to its requests in flight; requests that it did not take were not sent. When `may_send` returns None, the
    iteration yields None and asks again later; only a `steps.MultiplexedTarget` can handle that. Every request is
    available by index.
    """

    def __init__(self, requests: Sequence[Request], may_send: Callable[[Request, int], bool | None]) -> None:
        self._requests = requests
        self._may_send = may_send
        self.left = len(requests)  # not taken yet

    def __iter__(self) -> Iterator[Request]:
        """Yield requests until one may not be sent."""
        for request in self._requests:
            while (may_send := self._may_send(request, self.left)) is None:
                yield None  # type: ignore[misc]  # to a target with a transfer slot only
            if not may_send:
                return
            self.left -= 1
            yield request

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...

    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]
