"""One shard of an ordered target in a chunk: deliveries of a key one after the other, under the shard's lease."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from eventbridge.delivery import (
    Answer,
    DeadLettered,
    Outcome,
    RetryAt,
    Unknown,
    decide,
    expired,
    is_failure,
    too_early,
)
from eventbridge.order import (
    BLOCKED,
    REFERENCE_FIRST,
    RELEASED,
    SKIPPED,
    Open,
    Turns,
    is_due_for_renewal,
    last_start,
    lease_until,
)
from eventbridge.stages.flushed import flush, not_flushed
from eventbridge.stages.open_deliveries import open_deliveries
from eventbridge.stages.ordered_item import OrderedItem, Shard
from eventbridge.stages.outcome_rows import OutcomeRows, unsent_row
from eventbridge.stages.pace import Pace
from eventbridge.stages.pauses import heed
from eventbridge.stages.run_breaker import RunBreaker
from eventbridge.stages.target_run import TargetRun
from eventbridge.targets.protocol import Target

#: How long a push waits for its next retry with nothing else to do; how often a waiting one looks up.
_LINGER_SECONDS = 2.0
_NAP_SECONDS = 0.2
#: How long what waits for events that are not routed yet is left alone.
_REFERENCE_SECONDS = 10.0


class OrderedRun(TargetRun):
    """Delivers what a chunk has of one shard until all is answered or must wait, the budget is over, or `stop` is set.

    A delivery goes once every earlier one of its key has its verdict; one that fails, or may not be sent yet, blocks
    its key, the others go on. What must wait is reported as RetryAt without an attempt. Nothing starts that the shard's
    lease would not outlast.
    """

    def __init__(
        self,
        shard: Shard,
        items: Sequence[OrderedItem],
        failed: Iterable[OrderedItem],
        in_flight: int,
        *,
        until: datetime,
        stop: threading.Event,
        rows: OutcomeRows,
    ) -> None:
        super().__init__(
            shard.rule,
            shard.spec.name,
            items,
            open_target=lambda: shard.work.open_target(shard.rule, shard.spec),
            policy=shard.spec.retry,
            breaker=RunBreaker(
                shard.rule, shard.spec.name, disable_after_seconds=shard.spec.disable_after_seconds, opens=False
            ),
            pace=Pace(partial(shard.work.ledger.lease_tokens, shard.rule, shard.spec.name), shard.spec.rate_per_second),
            window=shard.spec.deliver_between,
            until=until,
            clock=shard.work.clock,
            stop=stop,
            rows=rows,
        )
        self.heeds_others = False
        self._shard = shard
        self._ordered = items
        self._failed = list(failed)
        self._in_flight = in_flight
        self._keeps = shard.spec.errors_tolerance == "none"
        self._timeout = shard.spec.timeout_seconds
        self._lease = until
        self._unclear = False
        self._open = Open()

    def _deliver_all(self, target: Target) -> None:
        if not self._wait_for_lease():
            self.report.spent = not self._stop_asked.is_set()
            return
        places = [item.place for item in self._ordered]
        shard = self._shard
        self._open = open_deliveries(
            shard.work, shard.batch, (shard.rule, shard.spec.name), shard.number, places, shard.own
        )
        for item in self._failed:
            self._open.add(item.key, item.place, head=True)
        turns = Turns((item.key, item.place, item) for item in self._ordered)
        while turns and not self._stop_asked.is_set() and not self._closed() and self._clock() < self._until:
            ready = self._next_ones(turns)
            if not turns:
                break
            if not (self._send_some(target, turns, ready) if ready else self._nap_until_due(turns)):
                break
        self._end(turns)

    def _next_ones(self, turns: Turns[OrderedItem]) -> list[OrderedItem]:
        """Return what may be sent now, one of a key at most; report what is decided without being sent."""
        now = self._clock()
        ready: list[OrderedItem] = []
        for key, first in turns.heads():
            item: OrderedItem | None = first
            while item is not None and (outcome := self._without_sending(item, now)) is not None:
                self._report(item, outcome, None)
                turns.next(key)
                if isinstance(outcome, RetryAt) and outcome.reason not in (BLOCKED, REFERENCE_FIRST):
                    self._block(turns, key, outcome.due_at)
                item = turns.head(key)
            if item is not None and (item.due_at is None or item.due_at <= now):
                ready.append(item)
        return ready[: self._in_flight]

    def _without_sending(self, item: OrderedItem, now: datetime) -> Outcome | None:
        """Return what becomes of a delivery that is not to be sent (now), None if it is."""
        if item.note == SKIPPED:
            return DeadLettered(item.reason or "NonRetryable", "skipped by `eventbridge rules release --skip`")
        if item.failure is not None:
            return self._kept(DeadLettered("TransformFailed", item.failure), now)
        if item.attempts == 0 and (reason := self._open.reason_to_wait(item.key, item.place)):
            due_at = now + timedelta(seconds=1.0 if reason == BLOCKED else _REFERENCE_SECONDS)
            return RetryAt(due_at, reason)
        if (early := too_early(item.not_before, self._window, now)) is not None:
            return early
        if item.note == RELEASED:
            return None  # a person wants it tried, whatever its age
        end = expired(self._policy, item.arrived_at, item.held_seconds, now)
        return None if end is None else self._kept(end, now)

    def _kept(self, end: DeadLettered, now: datetime) -> Outcome:
        """Return the end of a delivery, or, where none may be given up, that its rule is held at it."""
        return RetryAt(now, end.reason) if self._keeps else end

    def _send_some(self, target: Target, turns: Turns[OrderedItem], ready: Sequence[OrderedItem]) -> bool:
        """Send what in-flight limit and rate let through now; False if nothing more can be sent in this push."""
        if not self._shard.room.acquire(timeout=_NAP_SECONDS):
            return True
        try:
            paced = self._paced(ready)
            if not paced:
                return self._nap_until_token()
            if not self._renew():
                return False
            self._send(target, turns, paced)
            return True
        finally:
            self._shard.room.release()

    def _send(self, target: Target, turns: Turns[OrderedItem], ready: Sequence[OrderedItem]) -> None:
        until = min(self._until, last_start(self._lease, self._timeout))
        requests = [replace(item.request, index=index) for index, item in enumerate(ready)]
        answers: list[tuple[OrderedItem, Answer]] = []
        answered: set[int] = set()
        unsure = True
        try:
            with closing(target.deliver(requests, until)) as coming:
                for index, answer in coming:
                    answered.add(index)
                    answers.append((ready[index], answer))
                    if self._stop_asked.is_set():
                        break
            unsure = self._stop_asked.is_set()
        finally:
            self._unclear = self._unclear or unsure
        lost = flush(target)
        for item, answer in answers:
            self._take(turns, item, answer if lost is None else not_flushed(answer, lost))

    def _take(self, turns: Turns[OrderedItem], item: OrderedItem, answer: Answer) -> None:
        now, draw = self._dice.throw(answer)
        tried = replace(item, attempts=item.attempts + 1, note="")
        outcome: Outcome
        if answer.error_class == "Interrupted":
            self._unclear, outcome = True, Unknown()
        else:
            heed(answer, self._policy, tried.attempts, self._pace, self.breaker, now, draw)
            self.breaker.answered(item.delivery_id, now, failed=is_failure(answer))
            outcome = decide(
                answer,
                self._policy,
                attempts=tried.attempts,
                arrived_at=item.arrived_at,
                held_seconds=item.held_seconds,
                now=now,
                draw=draw,
                window=self._window,
            )
        ended = isinstance(outcome, DeadLettered)
        if isinstance(outcome, DeadLettered):
            if outcome.disable_target:
                self.report.gone = True
                self._shard.gone.set()
            outcome = self._kept(outcome, now)
        self._report(tried, outcome, answer)
        if isinstance(outcome, Unknown):
            turns.close(item.key)  # what follows has no outcome either: it comes back behind it
        elif isinstance(outcome, RetryAt):
            soon = min(self._until, now + timedelta(seconds=_LINGER_SECONDS))
            if not ended and outcome.due_at < soon:
                turns.put_back(item.key, replace(tried, due_at=outcome.due_at))
            else:
                turns.next(item.key)
                self._block(turns, item.key, outcome.due_at)
        else:
            turns.next(item.key)

    def _block(self, turns: Turns[OrderedItem], key: str, due_at: datetime) -> None:
        """Report all that is left of a key as waiting for its first, until that is due again."""
        blocked = turns.close(key)
        now = self._clock()
        if blocked:
            self.report.retried += len(blocked)
            outcome = RetryAt(max(due_at, now), BLOCKED)
            self._rows.put_all(unsent_row(item, outcome, now) for item in blocked)

    def _nap_until_due(self, turns: Turns[OrderedItem]) -> bool:
        """Wait a little for the next retry; False if none falls due soon enough to wait for."""
        now = self._clock()
        due = min(item.due_at or now for _, item in turns.heads())
        if due >= min(self._until, now + timedelta(seconds=_LINGER_SECONDS)):
            return False
        return self.presence.nap(min((due - now).total_seconds(), _NAP_SECONDS))

    def _paced(self, ready: Sequence[OrderedItem]) -> list[OrderedItem]:
        """Return those, the first ones, that the target's rate lets through now."""
        now = self._clock()
        paced: list[OrderedItem] = []
        for number, item in enumerate(ready):
            if not self._pace.take(now, len(ready) - number):
                break
            paced.append(item)
        return paced

    def _nap_until_token(self) -> bool:
        """Wait a little for the target's next token; False if it is too far away."""
        now = self._clock()
        token_at = self._pace.next_at or now
        linger = _LINGER_SECONDS if self._pace.beside is None else math.inf  # nobody waits for the rate of a redrive
        if (token_at - now).total_seconds() >= min((self._until - now).total_seconds(), linger):
            return False
        return self.presence.nap(min((token_at - now).total_seconds(), _NAP_SECONDS))

    def _end(self, turns: Turns[OrderedItem]) -> None:
        left = False
        for key, item in turns.heads():
            if item.due_at is None:
                left = True
            else:  # it was tried, and its next try comes later
                turns.next(key)
                self._block(turns, key, item.due_at)
        now = self._clock()
        stopped = self._shard.gone.is_set() or self._stop_asked.is_set() or self.presence.cut == "others"
        stopped = stopped or self.pause.at(now) is not None or self._pace.has_bound(now)
        self.report.spent = left and not stopped
        if not self._unclear:
            shard = self._shard
            shard.work.ledger.end_lease(shard.rule, shard.spec.name, shard.number, shard.holder)

    def _wait_for_lease(self) -> bool:
        while not self._stop_asked.is_set() and self._clock() < self._until:
            if self._take_lease():
                return True
            self._stop_asked.wait(_NAP_SECONDS)
        return False

    def _renew(self) -> bool:
        """Return whether the lease, made longer if need be, is still ours."""
        return not is_due_for_renewal(self._lease, self._clock(), self._timeout) or self._take_lease()

    def _take_lease(self) -> bool:
        shard = self._shard
        until = lease_until(self._clock(), self._timeout)
        taken = shard.work.ledger.take_lease(shard.rule, shard.spec.name, shard.number, shard.holder, until)
        if taken:
            self._lease = until
        return taken

    def _closed(self) -> bool:
        return super()._closed() or self._shard.gone.is_set()
