"""A window of the express lane: one open batch, whose events are delivered as they come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eventbridge.decision.express_pace import look_seconds, segment_is_due, window_is_over
from eventbridge.model.batch import Batch
from eventbridge.model.fresh_event import FreshEvent
from eventbridge.model.queue import Queue
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.ingest.buffer import Landing
from eventbridge.stages.operate.express_bus import ShiftBus
from eventbridge.stages.operate.express_close import Close
from eventbridge.stages.operate.express_fit import refuse_unfit
from eventbridge.stages.operate.express_routing import WindowRouting
from eventbridge.stages.operate.express_targets import TargetQueues
from eventbridge.stages.operate.shift_lease import Lease
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import write_open_segment

log = logging.getLogger(__name__)

#: A window is closed with so many events; one without events is dropped after a minute, so that rules are read again.
_WINDOW_EVENTS, _IDLE_WINDOW_SECONDS = 20_000, 60.0
#: So much of messages closes it too. While the former one is being closed it takes so many times as much of both.
_WINDOW_BYTES, _ROOM = 16 * 2**20, 5
#: How long its close waits for what was read but not answered; a full one longer, while answers come at this rate.
_PATIENCE_SECONDS, _FULL_PATIENCE_SECONDS, _QUICK_RATE = 1.0, 10.0, 1_000
#: How long its close waits before it looks again whether targets have answered.
_ANSWERS_SECONDS = 0.003
#: Events of one queue that are taken at a time.
_AT_ONCE = 1_000
#: Of so many events a second the closer does the books; of fewer a thread, which holds the loop for a moment only.
_LARGE_RATE = 150


@dataclass
class Window:
    """One open batch, from its first event to its last segment.

    While the `former` window is closed this one delivers without a batch of its own, by the rules of the former's; it
    records nothing. If the batch that it is given then has other rules, that is `instead`, and another window's.
    `on_large` is called once it is.
    """

    work: Runtime
    batch: Batch
    lease: Lease
    bus: ShiftBus
    held: frozenset[str] = frozenset()  # pools whose rules' deliveries wait
    former: Close | None = None
    on_large: Callable[[], None] | None = None
    instead: Batch | None = None
    number: int = 0
    events: int = 0
    busy_seconds: float = 0.0  # in which it dealt with what had come
    _bytes: int = 0
    _answered: int = 0

    def run(self) -> bool:
        """Deliver what comes until the window is over; False: it has no batch any more, and is not to be ended."""
        rules = self.work.rules_of(self.batch)
        refuse_unfit(rules, has_spark=not self.lease.bounds.makes_retries)
        self._seconds = rules.mode_of(self.batch.runner).express.window
        held = {name for name, rule in rules.rules.items() if rule.pool_name in self.held}
        routing = self._routing = WindowRouting(self.work, self.batch, rules, held)
        self._ends = dict(self.former.ends) if self.former is not None else self._standing()
        self._starts = dict(self._ends)
        bus = rules.buses[self.batch.bus]
        with self.bus.reading(bus, self._ends) as source:
            landing = Landing(self.work, self.batch, bus, source)
            before = self.former.targets if self.former is not None else None
            self.targets = TargetQueues(self.work, self.batch, rules, before)
            going = False
            try:
                going = self._stream(landing, source, routing)
                self.targets.finish()
                going = going and bool(self._has_batch(wait=True))
            finally:
                if not going:
                    self.targets.close()
        return going

    def record(self) -> bool:
        """Record what was answered, and how far it has read; False: the batch is another's now."""
        return self._segment()

    def end(self) -> bool:
        """Wait a moment for the last answers, and move the batch to `planned`; any thread may do it after `run`.

        False: there is nothing to close, as nothing came, or as it is another's now.
        """
        try:
            if not self.events and self.work.ledger.drop_open(self.batch.batch_id):
                return False
            return self._end() and self.work.ledger.move_batch(self.batch.batch_id, "open", "planned")
        finally:
            self.targets.close()

    @property
    def ends(self) -> Mapping[Queue, int]:
        """Up to where it has read."""
        return self._ends

    @property
    def is_large(self) -> bool:
        """Whether its books take so long that a process of its own is to do them."""
        return self.events >= _LARGE_RATE * self._seconds

    @property
    def waits(self) -> bool:
        """Whether something that it does not send waits for its close."""
        return self._routing.waits

    def _standing(self) -> dict[Queue, int]:
        return {span.queue: span.end for span in self.work.ledger.ranges(self.batch.batch_id)}

    def _has_batch(self, *, wait: bool = False) -> bool | None:
        """Return whether it has a batch of its own, as it gets once the former is closed; None: it gets none."""
        if self.former is None:
            return True
        while wait and not self.former.done:
            self.targets.carry(_ANSWERS_SECONDS)
        if not self.former.done:
            return False
        given = self.former.next_batch()
        self.former = None
        former, self.batch = self.batch, given or self.batch
        fits = given is not None and given.state == "open" and given.rule_set == former.rule_set
        if fits and self._standing() == self._starts:
            self.targets.batch = self.batch
            return True
        self.instead = given
        log.warning("runner %s: what was sent while a window was closed is sent again", former.runner)
        return None

    def _stream(self, landing: Landing, source: LogSource, routing: WindowRouting) -> bool:
        began = self._written = came = time.monotonic()
        first: float | None = None
        while not self.lease.over and not self._full:
            now = time.monotonic()
            if self._is_over(now, began, first):
                break
            before = self.events
            fresh: list[FreshEvent] = []
            for queue, end in source.ends().items():
                if not (self.lease.over or self._full) and queue in self._ends and end > self._ends[queue]:
                    fresh += self._take(landing, queue, min(end, self._ends[queue] + _AT_ONCE))
            if fresh:
                self.targets.offer(routing.pieces(fresh))
            if self.events > before:
                first, came = first or now, now
                self.lease.came()
            self.targets.poll()
            if not self._segment_if_due():
                return False
            if self.events > before:
                self.busy_seconds += time.monotonic() - now
            if self.on_large is not None and self.is_large:
                on_large, self.on_large = self.on_large, None
                on_large()
            self.targets.carry(look_seconds(self.events - before, 0.0 if self.targets.busy else now - came))
        return True

    def _is_over(self, now: float, began: float, first: float | None) -> bool:
        if self.lease.has_heir and (self.former is None or self.former.done):
            return True  # who stands by goes on from here, once this one can record how far it has come
        if first is None:
            return now - began >= _IDLE_WINDOW_SECONDS
        if self._must_grow:
            return False
        return window_is_over(now - first, self.events, self._seconds, waits=self._routing.waits)

    @property
    def _must_grow(self) -> bool:
        """Whether the former window is being closed: to end now is to wait for that, and to read nothing meanwhile."""
        return self.former is not None and not self.former.done

    @property
    def _full(self) -> bool:
        if self.events < _WINDOW_EVENTS and self._bytes < _WINDOW_BYTES:
            return False
        room = _ROOM if self._must_grow else 1
        return self.events >= room * _WINDOW_EVENTS or self._bytes >= room * _WINDOW_BYTES

    def _end(self) -> bool:
        """Wait a moment for what was read, then stop what is not answered, and record the last segment."""
        began = time.monotonic()
        answered, looked_at = self._answered, began
        patience = began + _PATIENCE_SECONDS
        while self.targets.busy and time.monotonic() < patience and not self.lease.lost.is_set():
            self.targets.poll()
            if not self._segment_if_due():
                return False
            now = time.monotonic()
            if self._full and now - looked_at >= _PATIENCE_SECONDS / 2:
                rate = (self._answered + self.targets.answers - answered) / (now - looked_at)
                answered, looked_at = self._answered + self.targets.answers, now
                if rate >= _QUICK_RATE:  # a full window comes of a burst, which would go to the retries for the most
                    patience = min(now + _PATIENCE_SECONDS, began + _FULL_PATIENCE_SECONDS)
            self.targets.carry(_ANSWERS_SECONDS)
        self.targets.close()
        return self._segment()

    def _segment_if_due(self) -> bool:
        settings, age = self.work.settings, time.monotonic() - self._written
        due = segment_is_due(age, self.targets.answers, settings.segment_seconds, settings.segment_answers)
        if not due:
            return True
        has_batch = self._has_batch()
        return self._segment() if has_batch else has_batch is False

    def _segment(self) -> bool:
        rows = self.targets.take()
        self._answered += rows.num_rows
        kept = write_open_segment(self.work, self.batch, self.number, self._ends, rows)
        self.number += 1
        self._written = time.monotonic()
        if not kept:
            log.warning("runner %s: batch %s was taken over", self.batch.runner, self.batch.batch_id)
        return kept

    def _take(self, landing: Landing, queue: Queue, limit: int) -> list[FreshEvent]:
        found = landing.take(queue, self._ends[queue], limit)
        self._ends[queue] = found.end
        self.events += found.read
        self._bytes += found.size
        return found.events
