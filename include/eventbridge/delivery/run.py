"""Sends the deliveries of a chunk or an open batch that belong to one target. Targets share a process, but a slow or
failing target neither delays the others nor makes them fail."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eventbridge.delivery.admission import Pace, Pause, RunBreaker
from eventbridge.delivery.outstanding import Item, TargetReport
from eventbridge.delivery.rows import OutcomeRows, outcome_row, unsent_row
from eventbridge.delivery.steps import OWN_THREAD, Sleep, Steps, run_to_completion
from eventbridge.model.outcome import DELIVERED, INTERRUPTED, PROXY_FAILED, DeadLettered, Outcome, Response, RetryAt
from eventbridge.policy.breaker import Ended, Tally
from eventbridge.policy.delivery_windows import dead_letter_if_late
from eventbridge.policy.response_to_outcome import (
    RETRY_AFTER_MAX,
    RetryTerms,
    decide,
    is_failure,
    last_start,
    pause_asked,
    slow_after,
)
from eventbridge.rules.model import DeliverBetween, RetryPolicy, StatusRules
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.engine import TransferSlot
from eventbridge.targets.protocol import Request, Target
from eventbridge.targets.steps import BlockingCall, Step, is_multiplexed

if TYPE_CHECKING:
    from eventbridge.delivery.live import LiveQueue


#: The maximum number of seconds that a run sleeps at a time, if nothing wakes it.
SLEEP_SECONDS = 0.2
#: The maximum number of seconds that a run with nothing else to do waits for its next retry. A later retry is left to a
#: retry batch, because waiting for it would delay the commit of the batch.
LINGER_SECONDS: Final = 2.0


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run.

    `slow_lane` is True in every batch that is not normal. No other target waits for such a run, so it waits for its
    target's next token for as long as its budget lasts. In a normal batch, a run waits for a token no longer than for a
    retry. With `follows_others`, findings of other pushes about the target end the run. With `uses_transfer_slot`, the
    target is expected to share an event loop. `opens_at_once` returns whether the target can be opened without waiting.
    For a `shadow`, any response settles its delivery and counts as accepted for the breaker. `timeout_seconds` is how
    long a response may take, `in_flight` is the maximum number of deliveries in flight, and `rate_of_file` is the rate
    in the rule file.
    """

    rule: str
    target: str
    open_target: Callable[[], Target]
    policy: RetryPolicy
    breaker: RunBreaker
    pace: Pace
    until: datetime
    clock: Callable[[], datetime]
    stop: Stop
    rows: OutcomeRows
    window: DeliverBetween | None = None
    slow_lane: bool = False
    follows_others: bool = True
    uses_transfer_slot: bool = False
    shadow: bool = False
    rate_of_file: float | None = None
    opens_at_once: Callable[[], bool] = lambda: False
    timeout_seconds: float = 10.0
    in_flight: int = 1
    retry_after_max: timedelta = RETRY_AFTER_MAX
    statuses: StatusRules = field(default_factory=StatusRules)

    @cached_property
    def terms(self) -> RetryTerms:
        """The terms of retries: the target's policy, timeout, window and statuses, and how long it may ask to wait."""
        return RetryTerms(self.policy, self.timeout_seconds, self.window, self.retry_after_max, self.statuses)


class Deliveries(Protocol):
    """The deliveries of a run, and the order in which they may be sent; each kind has its own class."""

    total: int

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send deliveries until each of them has a response or must wait, the budget is spent, or the run must end."""


class TargetRun:
    """Sends one target's deliveries until each of them has a response, the budget is spent, the run's breaker opens, or
    `stop` is set.

    Rows of the OUTCOME schema are added to `rows` only once the target has flushed the deliveries that they report.
    With a `queue`, the run is live, and its deliveries come through the queue.
    """

    def __init__(self, settings: RunSettings, deliveries: Deliveries, queue: LiveQueue | None = None) -> None:
        self.settings = settings
        self.queue = queue
        self.report = TargetReport(settings.rule, settings.target, total=deliveries.total)
        self.breaker = settings.breaker
        self.follows_others = settings.follows_others and not settings.breaker.probing
        self.pace = settings.pace
        self.pause = settings.pace.pause
        self.progress = Progress(settings.clock, may_always_wait=settings.slow_lane)
        self.retry_jitter = RetryJitter(settings.clock)
        self.clock = settings.clock
        self.until = settings.until
        self._budget = settings.until - settings.clock()
        self._deliveries = deliveries
        self.in_flight: Callable[[], Sequence[tuple[Item, datetime]]] = tuple  # items, and when each was sent
        self._slow_after = slow_after(settings.timeout_seconds, self._budget.total_seconds())
        #: Called in the run's thread; set by the engine that starts the run.
        self.on_begin: Callable[[TargetRun], None] = lambda _: None
        self.on_end: Callable[[TargetRun], None] = lambda _: None
        self._halted = self._wound_down = False
        self.starts_until = last_start(self.until, self._budget, 0.0)  # so that a response comes within the budget
        self._ended = False

    def tally(self) -> Tally | None:
        """Return the breaker's report, or None if there is nothing to report.

        The report's `ended` is None if the run has not ended, has crashed, or is for a shadow.
        """
        ended = self._ended and self.report.crashed is None and not self.settings.shadow
        return self.breaker.take(self._how_it_ended() if ended else None)

    def _how_it_ended(self) -> Ended:
        report = self.report
        taken_seconds = self.progress.response_seconds / self.settings.in_flight
        return Ended(
            report.settled,
            allowed=report.sent if report.held_up else report.total,
            delivered=report.delivered,
            spent=report.spent and not report.late and 2 * taken_seconds >= self._budget.total_seconds(),
            apart=self.settings.slow_lane,
            contacted=report.sent > 0,
            quick=not report.no_response and 2 * report.slow < report.responses,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended and added its last row."""
        return self._ended

    def halt(self) -> None:
        """End the run because another push or an operator decided that its target must not get any deliveries at the
        moment."""
        self._halted = True

    def limit(self, pause: Pause, redrive_pace: Pace | None) -> None:
        """Send nothing during the target's pause, which all its runs share, or without a token from `redrive_pace`."""
        self.pause = self.pace.pause = pause
        self.pace.redrive_pace = redrive_pace

    @property
    def is_stopping(self) -> bool:
        """Whether the push must stop, with all its runs."""
        return self.settings.stop.is_set()

    @property
    def must_give_up(self) -> bool:
        """Whether to stop without waiting for responses to requests in flight, which are recorded as sent."""
        return self.settings.stop.is_over()

    def wind_down(self) -> None:
        """Start no more requests, but wait for the responses to those in flight."""
        self._wound_down = True

    @property
    def is_refused(self) -> bool:
        """Whether the target must get no more deliveries from this run, even if some are left."""
        return self.report.gone or self.breaker.tripped or self._halted

    @property
    def is_closed(self) -> bool:
        """Whether this push may send nothing more to the target."""
        return self.is_refused or self._wound_down or self.breaker.too_slow

    def must_end(self, now: datetime) -> bool:
        """Return whether to send nothing more, because the push stops, the target must get nothing, or the budget is
        spent."""
        return self.is_stopping or self.is_closed or now >= self.until

    def admits(self, now: datetime, wanted: int, *, fresh: bool) -> bool:
        """Take the token for one more delivery and return True; return False if it may not be sent now. `wanted` is the
        number of tokens that are needed in total.

        A delivery is `fresh` if this run has not tried it. A retry is sent even if the breaker has no capacity, because
        the breaker is waiting for its result.
        """
        if self.breaker.is_unlimited and self.pace.is_unlimited:
            return True
        if fresh and self.breaker.capacity(now) == 0:
            return False
        return self.pace.take(now, wanted)

    def is_nearly_spent(self, now: datetime) -> bool:
        """Return whether it is too late to start another request within the budget."""
        return now >= self.starts_until - timedelta(seconds=SLEEP_SECONDS)

    def soon(self, now: datetime) -> datetime:
        """Return the time before which a retry must be due for this run to make it. Later retries are left to a retry
        batch."""
        return min(self.until, now + timedelta(seconds=LINGER_SECONDS))

    def waits_for_token(self, at: datetime, now: datetime) -> bool:
        """Return whether to wait for a token that is available at `at`, which in a normal batch must be soon."""
        return at < (self.until if self.settings.slow_lane else self.soon(now))

    def sleep(self, seconds: float) -> Generator[Sleep, None, bool]:
        """Wait briefly for something to be due; return False immediately if other targets would also have to wait."""
        return self.progress.sleep(min(seconds, SLEEP_SECONDS))

    def run(self) -> None:
        """Deliver in this thread."""
        run_to_completion(self.steps(None))

    def steps(self, slot: TransferSlot | None) -> Steps[None]:
        """Deliver with a transfer slot, or without one in a separate thread. An error is added to the report and not
        raised."""
        self.report.late = 2 * (self.until - self.clock()) < self._budget
        self.on_begin(self)
        with ExitStack() as last:  # last, because closing libcurl waits for host names that are being resolved
            try:
                if not self.is_stopping:
                    yield from self._deliver(slot, last)
            except (GeneratorExit, KeyboardInterrupt):  # its loop or thread was stopped, so it has not ended
                raise
            except BaseException as error:  # the push task raises it later
                self.report.crashed = error
                self._end()
            else:
                self._end()

    def _deliver(self, slot: TransferSlot | None, last: ExitStack) -> Steps[None]:
        opened = BlockingCall(self.settings.open_target)
        if self.settings.opens_at_once():
            opened.run()
        else:
            yield opened
        target = opened.result()
        if slot is None or not is_multiplexed(target):
            last.callback(target.close)
            if slot is not None:
                yield OWN_THREAD
            slot = None
        self.pace.defers = slot is not None
        yield from self._deliveries.deliver(self, Send(target, slot))

    def fail(self, error: BaseException) -> None:
        """End the run because of an error of the loop or thread that ran it."""
        if not self._ended:
            self.report.crashed = error
            self._end()

    def _end(self) -> None:
        self.progress.ended_at = self.clock()
        try:
            if not self.progress.leaves_retries:
                self.breaker.end_run(self.progress.ended_at)
        finally:
            self._ended = True
            self.on_end(self)

    def decide_outcome(self, item: Item, response: Response, now: datetime, draw: float) -> Outcome:
        """Return the outcome of a delivery after the response to its last attempt, which `item.attempts` includes."""
        outcome = decide(
            response,
            self.settings.terms,
            attempts=item.attempts,
            arrived_at=item.arrived_at,
            on_hold_seconds=item.on_hold_seconds,
            now=now,
            draw=draw,
        )
        return dead_letter_if_late(outcome, item.deadline_at)

    def judge(
        self, delivery_id: bytes, response: Response, *, attempts: int, at: JitterSample, again: bool = False
    ) -> None:
        """Apply the pause that a response asks for, and report the response to the breaker; `again` is True if this run
        will retry the delivery.

        While the target is paused, further responses that ask for a pause do not count against it, because the requests
        were already in flight.
        """
        if response.error_class == PROXY_FAILED:  # says nothing about the target
            if not again:  # its earlier responses do, and the breaker waits for its result
                self.breaker.record_abandoned(delivery_id, at.at)
            return
        until = pause_asked(response, self.settings.terms, attempts=attempts, now=at.at, draw=at.draw)
        if until is not None:
            is_known = self.pause.end_at(at.at) is not None
            self.pause.ask(until)
            self.breaker.record_pause(until)
            if is_known:
                return
        was_probing = self.breaker.probing
        self.breaker.record_response(
            delivery_id, at.at, failed=is_failure(response, self.settings.statuses), again=again
        )
        if was_probing and not self.breaker.probing:
            self.pace.ramp(at.at)

    def note_duration(self, response: Response, deliveries: int = 1) -> None:
        """Record how long the target took to respond to one delivery, or to so many at once.

        If the target's proxy fails slowly, a run that other targets wait for ends, but the target stays ok.
        """
        seconds, report = response.took_seconds, self.report
        if response.error_class == PROXY_FAILED:
            if self.breaker.judges_speed and seconds >= self._slow_after:
                self.wind_down()
            return
        if self.progress.note_duration(seconds, min(deliveries, self.settings.in_flight)):
            self.starts_until = last_start(self.until, self._budget, seconds)
        report.responses += 1
        if seconds < self._slow_after or (response.error_class == INTERRUPTED and self.must_give_up):
            return
        no_response = response.code is None and not response.accepted
        report.slow += 1
        report.no_response += no_response
        self.breaker.record_slow(self.clock(), no_response=no_response)

    def interrupted_response(self, started_at: datetime) -> Response:
        """Return the response to record for a request sent at `started_at` if the push stops waiting for its
        response."""
        passed_ms = max(0.0, (self.clock() - started_at).total_seconds() * 1000)
        error = "the push was stopped before a response came"
        return Response(False, started_at, passed_ms, error_class=INTERRUPTED, error=error)

    def record_in_flight(self) -> None:
        """Record requests in flight as sent, on behalf of a run that has not stopped in time."""
        for item, started_at in self.in_flight() if not self._ended else ():
            response, tried = self.interrupted_response(started_at), replace(item, attempts=item.attempts + 1)
            outcome = DELIVERED if self.settings.shadow else self.decide_outcome(tried, response, self.clock(), 0.5)
            self.settings.rows.put(outcome_row(tried, outcome, response))

    def accept(self, item: Item, response: Response) -> None:
        """Add the row for an accepted delivery, count the delivery, and report it to the breaker, which must be
        unlimited."""
        self.breaker.record_accepted(1, self.clock())
        self.note_duration(response)
        self.report.delivered += 1
        self.settings.rows.put(outcome_row(item, DELIVERED, response))

    def write(self, item: Item, outcome: Outcome, response: Response | None) -> None:
        """Add the row for an outcome, and count it; `response` is None if there was no attempt."""
        if self.settings.shadow and isinstance(outcome, (DeadLettered, RetryAt)):
            outcome = DELIVERED  # a shadow's failure has no effect; the row has the response
        if response is not None:
            self.note_duration(response)
        if outcome is DELIVERED:
            self.report.delivered += 1
        elif isinstance(outcome, DeadLettered):
            self.report.dead_lettered += 1
            self.report.gone |= outcome.disable_target
        elif isinstance(outcome, RetryAt):
            self.report.retried += 1
        row = outcome_row(item, outcome, response) if response is not None else unsent_row(item, outcome, self.clock())
        self.settings.rows.put(row)


@dataclass(frozen=True)
class Send:
    """An open target, and the transfer slot to send with. Without a slot, the run's thread sends."""

    target: Target
    slot: TransferSlot | None

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[Step, None, None]:
        """Send requests, with `MultiplexedTarget.steps` if there is a transfer slot, else with `Target.deliver`."""
        if self.slot is None:
            return self.target.deliver(requests, until)
        assert is_multiplexed(self.target), "only multiplexed targets get a transfer slot"
        return self.target.steps(requests, until, self.slot)


class Progress:
    """The progress of a run: when it ended, whether it is waiting, and how long its responses took.

    If `may_always_wait`, the run may always wait for something to be due; otherwise, `may_wait` decides. The run's
    thread sets everything except `may_wait`, which the push sets.
    """

    def __init__(self, clock: Callable[[], datetime], *, may_always_wait: bool) -> None:
        self._clock = clock
        self.may_wait: Callable[[], bool] = lambda: True
        self.ended_at: datetime | None = None
        self.leaves_retries = False  # whether a retry batch makes its next retries
        self.response_seconds = 0.0
        self._longest_seconds = 0.0
        self._may_always_wait = may_always_wait
        self._is_waiting = False
        self._woken = threading.Event()

    @property
    def is_at_work(self) -> bool:
        """Whether the run has not ended, and does more than wait for something to be due."""
        return self.ended_at is None and not self._is_waiting

    def note_duration(self, seconds: float, deliveries: int) -> bool:
        """Record how long the response to some deliveries took, and return whether it is the longest so far."""
        self.response_seconds += seconds * deliveries
        is_longest = seconds > self._longest_seconds
        if is_longest:
            self._longest_seconds = seconds
        return is_longest

    def sleep(self, seconds: float) -> Generator[Sleep, None, bool]:
        """Wait for `seconds` or a call of `wake`; return False immediately if other targets would also have to wait."""
        self._is_waiting = True  # first, because from now on `wake` has an effect
        self.leaves_retries = not (self._may_always_wait or self.may_wait())
        if self.leaves_retries:
            self._is_waiting = False
            return False
        yield Sleep(max(0.0, seconds), self._woken)
        self._woken.clear()
        self._is_waiting = False
        return True

    def wake(self) -> None:
        """End a sleep, so that the run checks again whether it may wait."""
        if self._is_waiting:
            self._woken.set()


class JitterSample(NamedTuple):
    """The time at which the outcome of a response was decided, and a random number in [0, 1) for its jitter."""

    at: datetime
    draw: float


class RetryJitter:
    """Samples the jitter for the responses of one run.

    Each item of a batch request has its own response, with the times of the common request. Without a common sample, a
    rejected batch request with 100 items would be retried as 100 requests to a target that is already in trouble.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._request: tuple[datetime, float] | None = None
        self._last: JitterSample | None = None

    def sample(self, response: Response) -> JitterSample:
        """Return the sample for the request to which a response belongs: the last sample if the request is the same,
        else a new one."""
        request = (response.started_at, response.duration_ms)
        if self._last is None or request != self._request:
            self._request, self._last = request, JitterSample(self._clock(), random.random())
        return self._last
