"""One target's share of a chunk, delivered in a thread of its own: sharing a chunk shares a process, never a fate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime, timedelta

from eventbridge.breaker import Tally
from eventbridge.delivery import DELIVERED, Answer, DeadLettered, Outcome, RetryAt, Unknown, decide, expired, is_failure
from eventbridge.rule.model import RetryPolicy
from eventbridge.rule.window import DeliverBetween
from eventbridge.stages.dice import Dice
from eventbridge.stages.feed import Feed
from eventbridge.stages.flushed import flush, must_flush, not_flushed
from eventbridge.stages.items import Item, TargetReport
from eventbridge.stages.outcome_rows import OutcomeRows, outcome_row, unsent_row
from eventbridge.stages.pace import Pace, Pause
from eventbridge.stages.pauses import heed, put_off_paused
from eventbridge.stages.presence import Presence
from eventbridge.stages.run_breaker import RunBreaker
from eventbridge.targets.protocol import Request, Target

#: How long a push waits for its next retry with nothing else to do, if other targets of the batch are at work anyway.
#: A longer wait is the slow lane's: here it would keep the whole batch, and with it every other target's next events,
#: from being committed.
_LINGER_SECONDS = 2.0
#: Longest nap of a thread that waits for a retry to fall due, if nobody wakes it.
_NAP_SECONDS = 0.2


class TargetRun(threading.Thread):
    """Delivers items to one target until all are answered, the budget is over, its breaker opens, or `stop` is set.

    Rows of schema OUTCOME go to `rows`, only once the target has flushed what they report.
    A retry that falls due within the budget is made here, without a round through the ledger.
    `patient`: it waits for its target's next token as long as the budget lasts, else as long as for a retry; and it
    waits though the others of its batch are done.
    """

    def __init__(
        self,
        rule: str,
        target: str,
        items: Sequence[Item],
        *,
        open_target: Callable[[], Target],
        policy: RetryPolicy,
        breaker: RunBreaker,
        pace: Pace,
        window: DeliverBetween | None = None,
        until: datetime,
        clock: Callable[[], datetime],
        stop: threading.Event,
        rows: OutcomeRows,
        patient: bool = False,
    ) -> None:
        super().__init__(name=f"{rule}/{target}", daemon=True)
        self.report = TargetReport(rule, target, total=len(items))
        self._open_target = open_target
        self._policy = policy
        self._window = window
        self.breaker = breaker
        self.heeds_others = not breaker.probing  # what other pushes find out of its target ends this run
        self._pace = pace
        self.pause = pace.pause
        self._patient = patient
        self._halted = threading.Event()
        self.presence = Presence(clock, patient=patient)
        self._until = until
        self._clock = clock
        self._stop_asked = stop
        self._rows = rows
        self._waiting: list[Item] = []
        self._of_index: dict[int, Item] = {}
        self._take_up(items)
        self._unflushed: list[tuple[Item, Answer]] = []
        self._unjudged: set[int] = set()  # requests that were sent in a bundle and have no answer: they go again
        self._interrupted = False
        self._ended = False
        self._dice = Dice(clock)

    def tally(self) -> Tally | None:
        """Return what the breaker is told at the end of the run; nothing of its end if it crashed or never began."""
        ended = self._ended and self.report.crashed is None
        return self.breaker.take(self.presence.told_with(self.report.ended) if ended else None)

    @property
    def ended(self) -> bool:
        """Whether it was started and has put its last row."""
        return self._ended

    def halt(self) -> None:
        """End the run: others have found that nothing must be sent to its target now."""
        self._halted.set()

    def keep(self, pause: Pause, beside: Pace | None) -> None:
        """Start nothing while its target wants a pause, one for all its runs, nor without a token of `beside`."""
        self.pause = self._pace.pause = pause
        self._pace.beside = beside

    def run(self) -> None:
        """Deliver; what goes wrong here is reported, never raised into the other targets' threads."""
        self.presence.began_at = self._clock()
        with ExitStack() as last:  # libcurl closes once the last name is looked up, which a name server may put off
            try:
                target = self._open_target()
                last.callback(target.close)
                self._deliver_all(target)
            except BaseException as error:  # carried to the push task, which fails with it
                self.report.crashed = error
            finally:
                self._leave()

    def _leave(self) -> None:
        self.presence.ended_at = self._clock()
        try:
            if not self.presence.hurried:  # else the slow lane tries what failed again, and judges
                self.breaker.leave(self.presence.ended_at)
        finally:
            self._ended = True
            self._rows.wake()

    def _take_up(self, items: Iterable[Item]) -> None:
        self._waiting += (taken := list(items))
        self._number(taken)

    def _number(self, items: Iterable[Item]) -> None:
        self._of_index.update((item.request.index, item) for item in items)

    def _deliver_all(self, target: Target) -> None:
        while self._waiting and not self._over():
            ready = self._ready()
            if ready:
                self._round(target, ready)
            elif self._waiting and not self._nap():
                break
        now = self._clock()
        paused_until = self.pause.at(now)
        if paused_until is not None and not self._stop_asked.is_set() and not self._refused():
            self.report.held_up = True
            self._waiting = put_off_paused(self._waiting, paused_until, now, self._rows)
        self.report.held_up |= self._pace.has_bound(now)  # its last tokens were on their way
        cut, nap = self.presence.cut, timedelta(seconds=_NAP_SECONDS)
        over = cut == "budget" or (now >= self._until - nap and not cut)
        self.report.spent = over and not self._refused() and self._has_unsettled_work()

    def _ready(self) -> list[Item]:
        now = self._clock()
        ready = [item for item in self._waiting if item.due_at is None or item.due_at <= now]
        self._waiting = [item for item in self._waiting if item.due_at is not None and item.due_at > now]
        alive = []
        for item in ready:
            verdict = expired(self._policy, item.arrived_at, item.held_seconds, now)
            if verdict is None:
                alive.append(item)
            else:
                self.breaker.given_up(item.delivery_id, now)
                self._report(item, verdict, None)
        return self._admitted(alive)

    def _admitted(self, alive: list[Item]) -> list[Item]:
        """Return what may be sent in the next round, what was tried before first; the rest waits on."""
        if alive and not self._pace.open(self._clock()):
            self._waiting += alive
            return []
        alive.sort(key=lambda item: item.due_at is None)
        room = self.breaker.room(self._clock())
        if room is None:
            self.report.held_up = False
            return alive
        tried = sum(item.due_at is not None for item in alive)
        self.report.held_up = self.report.held_up or len(alive) > tried + room
        self._waiting += alive[tried + room :]
        return alive[: tried + room]

    def _round(self, target: Target, ready: list[Item]) -> None:
        feed = Feed([item.request for item in ready], self._may_send)
        answered: set[int] = set()
        with closing(target.deliver(feed, self._until)) as answers:
            for index, answer in answers:
                answered.add(index)
                self._unflushed.append((self._of_index[index], answer))
                if must_flush(target, len(self._unflushed), self._unflushed[0][1], answer):
                    self._settle_answers(target)
                ends = self._stop_asked.is_set() or self._halted.is_set() or self.report.gone
                if ends and not target.more_of_answer:
                    break
        self._settle_answers(target)
        taken = ready[: len(ready) - feed.left]
        if len(answered) < len(taken):
            self._unjudged.update({item.request.index for item in taken} - answered)
        # what was not started comes first again if there is still time, else it stays without an outcome
        self._waiting = [item for item in ready if item.request.index not in answered] + self._waiting

    def _may_send(self, request: Request, left: int) -> bool:
        """Return whether a request of a round, in which `left` are not sent yet, may be sent now."""
        if self._stop_asked.is_set() or self._closed():
            return False
        fresh = self._of_index[request.index].due_at is None
        if not (self.breaker.at_rest and self._pace.free):
            now = self._clock()
            no_room = fresh and self.breaker.room(now) == 0
            if no_room or not self._pace.take(now, len(self._waiting) + left):
                self.report.held_up = True
                return False
        self.report.sent += fresh and request.index not in self._unjudged
        return True

    def _settle_answers(self, target: Target) -> None:
        batch, self._unflushed = self._unflushed, []
        if not batch:
            return
        lost = flush(target)
        for item, answer in batch:
            self._decide(item, answer if lost is None else not_flushed(answer, lost))

    def _decide(self, item: Item, answer: Answer) -> None:
        now, draw = self._dice.throw(answer)
        item.attempts += 1
        outcome: Outcome = DELIVERED
        if answer.accepted and self.breaker.at_rest:  # as nearly all are: what follows would come to the same
            self.breaker.accepted(1, now)
        elif answer.error_class == "Interrupted":
            self._interrupted, outcome = True, Unknown()
        else:
            outcome = decide(
                answer,
                self._policy,
                attempts=item.attempts,
                arrived_at=item.arrived_at,
                held_seconds=item.held_seconds,
                now=now,
                draw=draw,
                window=self._window,
            )
            self._judge(item, answer, outcome, now, draw)
        self._report(item, outcome, answer)
        if isinstance(outcome, RetryAt):
            item.due_at = outcome.due_at
            self._waiting.append(item)

    def _judge(self, item: Item, answer: Answer, outcome: Outcome, now: datetime, draw: float) -> None:
        """Tell the breaker of an answer, and whether this push will soon try that delivery again."""
        if heed(answer, self._policy, item.attempts, self._pace, self.breaker, now, draw):
            return
        again = isinstance(outcome, RetryAt) and outcome.due_at < self._soon(now)
        probing = self.breaker.probing
        self.breaker.answered(item.delivery_id, now, failed=is_failure(answer), again=again)
        if probing and not self.breaker.probing:
            self._pace.ramp(now)

    def _soon(self, now: datetime) -> datetime:
        return min(self._until, now + timedelta(seconds=_LINGER_SECONDS))

    def _report(self, item: Item, outcome: Outcome, answer: Answer | None) -> None:
        if answer is not None:
            self.presence.answered(answer, again=item.due_at is not None)
        if outcome is DELIVERED:
            self.report.delivered += 1
        elif isinstance(outcome, DeadLettered):
            self.report.dead_lettered += 1
            self.report.gone |= outcome.disable_target
        elif isinstance(outcome, RetryAt):
            self.report.retried += 1
        row = outcome_row(item, outcome, answer) if answer is not None else unsent_row(item, outcome, self._clock())
        self._rows.put(row)

    def _nap(self) -> bool:
        """Wait a little for something to fall due; False if the others would have to wait for that."""
        now, next_at = self._clock(), self._pace.next_at
        due = min((item.due_at for item in self._waiting if item.due_at is not None), default=self._until)
        if next_at is not None and next_at > now:
            due = next_at if any(item.due_at is None for item in self._waiting) else max(due, next_at)
        wait = (min(due, self._until) - now).total_seconds()
        return self.presence.nap(min(wait, _NAP_SECONDS))

    def _closed(self) -> bool:
        """Return whether nothing more may be sent to this target by this push."""
        return self._refused() or bool(self.presence.cut)

    def _refused(self) -> bool:
        return self.report.gone or self.breaker.tripped or self._halted.is_set()

    def _over(self) -> bool:
        if self._stop_asked.is_set() or self._closed():
            return True
        now = self._clock()
        soon = self._soon(now)
        token_at = self._pace.next_at
        if token_at is not None and token_at >= (self._until if self._patient else soon):
            self.report.held_up = True
            return True
        return now >= self._until or all(item.due_at is not None and item.due_at >= soon for item in self._waiting)

    def _has_unsettled_work(self) -> bool:
        late = [] if self._pace.has_bound(self._clock()) else self._waiting  # what waits for a token is not late
        return self._interrupted or any(item.due_at is None or item.due_at <= self._until for item in late)
