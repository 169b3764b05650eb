"""Carries the runs of all http targets of a push in one thread: none of them waits for another, and none holds it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from eventbridge.stages.push.run import TargetRun
from eventbridge.stages.push.steps import Nap, OwnThread, Steps, drive
from eventbridge.stages.push.threads import Threads
from eventbridge.targets.http_engine import HttpEngine, Seat, engine_of_push
from eventbridge.targets.steps import Aside

#: Runs that are begun between two looks at what has been answered: to begin one takes as long as to send a few.
_BEGUN_AT_ONCE = 8
#: Longest wait for an answer before it is seen whether a nap was ended.
_TICK_SECONDS = 0.05
#: How often those that wait for an answer see whether the push is to stop, or their time is over.
_LOOK_SECONDS = 0.2
#: Calls that take their time, such as for a token or a lease, that are made at a time; each hangs for itself.
_ASIDE_AT_ONCE = 64


@dataclass(eq=False, slots=True)
class _Lane:
    run: TargetRun
    steps: Steps[None]
    waits: Literal["news", "nap", "call"] = "call"
    nap: Nap | None = None
    until: float = 0.0


class HttpLoop:
    """Carries runs in a thread of its own; one whose target holds its thread after all is handed to `threads`.

    `lasting`: it waits for more runs until `end`.
    """

    def __init__(self, runs: Iterable[TargetRun], threads: Threads, *, lasting: bool = False) -> None:
        self._fresh = deque(runs)
        self._lasting = lasting
        self._engine: HttpEngine | None = None
        self._error: BaseException | None = None
        self._threads = threads
        self._asides = Threads("push aside", _ASIDE_AT_ONCE)
        self._lanes: dict[_Lane, None] = {}
        self._napping: dict[_Lane, None] = {}
        self._called: deque[_Lane] = deque()  # whose call was made
        self._lane_of: dict[TargetRun, _Lane] = {}
        self._told: deque[TargetRun] = deque()  # that there is more for them
        self._thread = threading.Thread(target=self._carry, name="push http", daemon=True)

    def start(self) -> list[threading.Thread]:
        """Begin, and return the threads to wait for."""
        if not (self._fresh or self._lasting):
            return []
        self._thread.start()
        return [self._thread]

    def add(self, run: TargetRun) -> None:
        """Carry one more run; the loop is lasting, and has not been ended."""
        self._fresh.append(run)
        self._wake()
        if self._error is not None:
            run.fail(self._error)

    def tell(self, runs: Iterable[TargetRun]) -> None:
        """Let runs that wait for news see that there is more for them; any thread may."""
        self._told.extend(runs)
        self._wake()

    def end(self) -> None:
        """End once all runs have."""
        self._lasting = False
        self._wake()

    def _wake(self) -> None:
        if self._engine is not None:
            self._engine.wake()

    def _carry(self) -> None:
        engine = self._engine = engine_of_push()
        try:
            self._carry_all(engine)
        except BaseException as error:  # of the loop, not of a run, which keeps its own: the push fails with it
            self._error = error
            for run in [*(lane.run for lane in self._lanes), *self._fresh]:
                run.fail(error)
        engine.close()

    def _carry_all(self, engine: HttpEngine) -> None:
        looked_at = time.monotonic()
        while self._fresh or self._lanes or self._lasting:
            for seat in engine.wait(self._patience()):
                if seat.holder.waits == "news":
                    self._go_on(engine, seat.holder)
            while self._called:
                self._go_on(engine, self._called.popleft())
            while self._told:
                told = self._lane_of.get(self._told.popleft())
                if told is not None and told.waits == "news":
                    self._go_on(engine, told)
            now = time.monotonic()
            for lane in [lane for lane in self._napping if _is_up(lane, now)]:
                del self._napping[lane]
                self._go_on(engine, lane)
            if now - looked_at >= _LOOK_SECONDS:
                looked_at = now
                for lane in [lane for lane in self._lanes if lane.waits == "news"]:
                    self._go_on(engine, lane)
            self._begin_some(engine)

    def _patience(self) -> float:
        """Return how long an answer may be waited for."""
        if self._fresh or self._called:
            return 0.0
        first = min((lane.until for lane in self._napping), default=None)
        return _TICK_SECONDS if first is None else max(0.0, min(_TICK_SECONDS, first - time.monotonic()))

    def _begin_some(self, engine: HttpEngine) -> None:
        for _ in range(min(_BEGUN_AT_ONCE, len(self._fresh))):
            run = self._fresh.popleft()
            seat = Seat(engine)
            seat.holder = lane = _Lane(run, run.steps(seat))
            self._lanes[lane] = None
            self._lane_of[run] = lane
            self._go_on(engine, lane)

    def _go_on(self, engine: HttpEngine, lane: _Lane) -> None:
        try:
            step = next(lane.steps)
        except StopIteration:
            self._drop(lane)
            return
        if step is None:
            lane.waits = "news"
        elif isinstance(step, Nap):
            lane.waits, lane.nap, lane.until = "nap", step, time.monotonic() + step.seconds
            self._napping[lane] = None
        elif isinstance(step, OwnThread):
            self._drop(lane)
            self._threads.add(partial(drive, lane.steps))
        else:
            lane.waits = "call"
            self._asides.add(partial(self._call, engine, lane, step))

    def _drop(self, lane: _Lane) -> None:
        del self._lanes[lane]
        del self._lane_of[lane.run]

    def _call(self, engine: HttpEngine, lane: _Lane, aside: Aside) -> None:
        aside.run()
        self._called.append(lane)
        engine.wake()


def _is_up(lane: _Lane, now: float) -> bool:
    return now >= lane.until or (lane.nap is not None and lane.nap.woken.is_set())
