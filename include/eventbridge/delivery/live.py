"""Sends the deliveries of a target as they arrive, in a live run that lasts until it has been idle for a while."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

from eventbridge.delivery.outstanding import Item, ReadPiece, items_of
from eventbridge.delivery.per_delivery import Rounds
from eventbridge.delivery.run import Send, TargetRun
from eventbridge.delivery.steps import Steps
from eventbridge.rules import Target as TargetRule
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.protocol import Request
from eventbridge.targets.steps import is_multiplexed

#: The time that a live run may be idle before it ends. Starting a live run takes as much CPU time as keeping an idle
#: one for a few seconds.
IDLE: Final = timedelta(seconds=2)


def can_be_live(spec: TargetRule | None) -> bool:
    """Return whether the deliveries of a target may be sent at any time and in any order, one by one or in blocks."""
    if spec is None or spec.ordered or spec.deliver_between is not None or spec.not_before is not None:
        return False
    if isinstance(spec, HttpFields):
        return spec.batch is None
    return TARGET_TYPES.get_in_force(spec.type).takes_of(spec) == "blocks"


class LiveQueue:
    """The pieces that are waiting for a target's live run; one thread adds them, and the run's thread takes them.

    Once `ends` is set, no more pieces are added, and the run ends after the remaining pieces. `notified` is set
    whenever a piece is added, and at the end.
    """

    def __init__(self) -> None:
        self._pieces: deque[ReadPiece] = deque()
        self._next = 0
        self.ends = False
        self.notified = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, piece: ReadPiece) -> None:
        """Add a piece, and renumber its deliveries so that each number is unique within the run."""
        self._pieces.append(replace(piece, first=self._next))
        self._next += piece.count
        self.notified.set()

    def end(self) -> None:
        """Mark the end of the queue, after which no more pieces are added."""
        self.ends = True
        self.notified.set()

    def take(self) -> ReadPiece | None:
        """Remove and return the oldest piece; None if there is none."""
        return self._pieces.popleft() if self._pieces else None

    def put_back(self, piece: ReadPiece) -> None:
        """Put back the piece that was taken last."""
        self._pieces.appendleft(piece)


class LiveDeliveries:
    """Sends deliveries from a queue. Retries that are due soon are made here; later ones are left to a retry batch."""

    total = 0

    def __init__(self, queue: LiveQueue, within_seconds: float | None) -> None:
        self._queue = queue
        self._within_seconds = within_seconds

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send deliveries as they arrive until the run is idle, its budget is spent, or it must end."""
        return _LiveRound(run, send, self._queue, self._within_seconds).deliver()


class _LiveRound(Rounds):
    """A single round that lasts as long as its run, because the next request to send may not have arrived yet.

    `_item_by_index` holds the items that were taken from the queue and that this run must still send or retry;
    `_waiting` holds those of them that are waiting for a retry.
    """

    def __init__(self, run: TargetRun, send: Send, queue: LiveQueue, within_seconds: float | None) -> None:
        super().__init__(run, send, ())
        self._queue = queue
        self._within_seconds = within_seconds
        self._taken: deque[Item] = deque()
        self._busy_at = self._clock()

    def deliver(self) -> Steps[None]:
        """Send deliveries as they arrive."""
        target, slot, run = self._send.target, self._send.slot, self._run
        assert is_multiplexed(target), "targets that can be live are multiplexed"
        assert slot is not None, "multiplexed targets have a transfer slot"
        responses_until = self._until + timedelta(seconds=run.settings.timeout_seconds)
        with closing(target.steps(_LiveFeed(self), responses_until, slot)) as steps:
            yield from self._receive(target, steps)
        self._settle_responses(target)
        self._break_off()
        self._end(self._clock())

    def requests(self) -> Iterator[Request | None]:
        """Yield requests that may be sent, and None while there are none, until the run is over."""
        while not self._is_over():
            now = self._clock()
            item = self._next(now)
            if item is None:
                yield None
            elif self._ends_unsent(item, now):
                del self._item_by_index[item.request.index]
            elif not self._run.admits(now, len(self._item_by_index), fresh=item.due_at is None):
                self._put_back(item)
                yield None
            else:
                self._run.report.sent += item.due_at is None
                self._sent_at[item.request.index] = monotonic()
                yield item.request

    def _is_over(self) -> bool:
        run, now = self._run, self._clock()
        if run.must_end(now):
            return True
        token_at = run.pace.next_at
        if token_at is not None and not run.waits_for_token(token_at, now):
            run.report.held_up = True
            return True
        if self._queue or self._item_by_index:
            self._busy_at = now
            return False
        return self._queue.ends or now - self._busy_at >= IDLE

    def _next(self, now: datetime) -> Item | None:
        for index, item in enumerate(self._waiting):
            if item.due_at is not None and item.due_at <= now:
                return self._waiting.pop(index)
        if not self._taken:
            self._take_from_queue()
        return self._taken.popleft() if self._taken else None

    def _put_back(self, item: Item) -> None:
        """Keep an item that may not be sent now. A due retry comes first, because the breaker may be waiting for its
        result."""
        if item.due_at is None:
            self._taken.appendleft(item)
        else:
            self._waiting.insert(0, item)

    def _take_from_queue(self) -> None:
        piece = self._queue.take()
        if piece is not None:
            items = list(items_of(piece.each(), piece.piece, {}, piece.first, self._within_seconds))
            self._taken.extend(items)
            self._item_by_index.update((item.request.index, item) for item in items)
            self._run.report.total += len(items)

    def _item_responded(self, index: int) -> Item:
        return self._item_by_index.pop(index)

    def _again(self, item: Item, due_at: datetime) -> None:
        if due_at < self._run.soon(self._clock()):
            self._item_by_index[item.request.index] = item
            super()._again(item, due_at)

    def _end(self, now: datetime) -> None:
        """If the target asked for a pause, defer the items that were not sent; otherwise they get no outcome."""
        run = self._run
        while self._queue and not self._may_continue(now):
            self._take_from_queue()
        self._waiting = list(self._item_by_index.values())
        self._defer_paused(now)
        run.report.held_up |= run.pace.has_limited(now) or bool(self._waiting)

    def _may_continue(self, now: datetime) -> bool:
        """Return whether another run may send the rest of the queue."""
        run = self._run
        return now >= self._until or not (run.is_stopping or run.is_closed or run.pace.next_at is not None)


class _LiveFeed:
    """The requests of a live round, in the form that its target takes. The object is always true, because more requests
    may come."""

    def __init__(self, live: _LiveRound) -> None:
        self._live = live

    def __iter__(self) -> Iterator[Request | None]:
        return self._live.requests()
