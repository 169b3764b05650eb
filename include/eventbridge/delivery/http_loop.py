"""Runs all HTTP targets of a push in one thread, without letting any target block the thread or wait for another
target.

A push runs the loop in a separate thread. A streaming task has one loop for all its batches, and runs it between two
polls of the bus, in the task's own thread: two threads that release the interpreter several times for each delivery
would spend more time waiting for each other than working.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.steps import OwnThread, SharedFlush, Sleep, Steps, run_to_completion
from eventbridge.delivery.threads import Threads
from eventbridge.targets.http.engine import HttpEngine, TransferSlot, engine_of_push
from eventbridge.targets.http.multi import HasFileno
from eventbridge.targets.steps import BlockingCall

#: The maximum number of runs to begin between two polls for responses. Beginning one takes as long as sending a few
#: requests.
_BEGUN_AT_ONCE = 8
#: The maximum number of seconds to wait for a response before the loop checks which sleeps have ended.
_TICK_SECONDS = 0.05
#: The seconds between two checks, by runs that are waiting for a response, whether the push must stop or their time is
#: over.
_POLL_SECONDS = 0.2
#: The maximum number of seconds by which the loop runs longer than requested while responses keep arriving.
_BUSY_SECONDS = 0.05
#: The seconds that a thread waits while another runs the loop: about as long as the loop runs between two polls of a
#: bus.
_MOMENT_SECONDS = 0.003
#: The maximum number of simultaneous blocking calls, such as those for a token or a lease. Each call can hang without
#: affecting the others.
_BLOCKING_CALLS_AT_ONCE = 64


@dataclass(eq=False, slots=True)
class _Task:
    run: TargetRun
    steps: Steps[None]
    waits: Literal["news", "sleep", "call"] = "call"
    sleep: Sleep | None = None
    until: float = 0.0


class HttpLoop:
    """Executes the runs of HTTP targets.

    A run whose target turns out to block its thread is moved to `threads`. Either `start` runs the loop until its runs
    have ended, or threads call `run_for`, one at a time, until the loop is closed.
    """

    def __init__(self, runs: Iterable[TargetRun], threads: Threads) -> None:
        self._fresh = deque(runs)
        self._engine: HttpEngine | None = None
        self._error: BaseException | None = None
        self._threads = threads
        self._blocking_calls = Threads("push calls", _BLOCKING_CALLS_AT_ONCE)
        self._tasks: dict[_Task, None] = {}
        self._sleeping: dict[_Task, None] = {}
        self._called: deque[_Task] = deque()  # tasks whose call has ended
        self._task_of: dict[TargetRun, _Task] = {}
        self._notified: deque[TargetRun] = deque()  # runs that have more work
        self._polled_at = time.monotonic()
        self._running_lock = threading.Lock()
        self._has_work_left = False

    @property
    def has_failed(self) -> bool:
        """Whether the loop has ended because of an error of its own."""
        return self._error is not None

    def start(self) -> list[threading.Thread]:
        """Run the loop in a separate thread; return the threads to wait for."""
        if not self._fresh:
            return []
        thread = threading.Thread(target=self._run_all, name="push http", daemon=True)
        thread.start()
        return [thread]

    def add(self, run: TargetRun) -> None:
        """Add a run; if the loop has failed, the run fails immediately."""
        self._fresh.append(run)
        if self._error is not None:
            run.fail(self._error)

    def notify(self, runs: Iterable[TargetRun]) -> None:
        """Wake waiting runs, because more work has arrived for them."""
        self._notified.extend(runs)

    def run_for(self, seconds: float, watched: HasFileno | None = None) -> bool:
        """Run for `seconds` in this thread, and slightly longer while responses arrive.

        It returns early when a live run has ended with work left, so that its next run can start, or when `watched` is
        readable. Returns whether a live run has ended with work left. If another thread is running the loop, which two
        batches of a streaming task may share, this call only waits briefly and returns False.
        """
        if not self._running_lock.acquire(blocking=False):
            time.sleep(min(seconds, _MOMENT_SECONDS))
            return False
        until = time.monotonic() + seconds
        try:
            engine = self._engine = self._engine or engine_of_push()
            if watched is not None:
                engine.watch_fd(watched)
            had_news = True
            while (left := until - time.monotonic()) > 0 and not (watched is not None and engine.fd_ready):
                had_news = self._step(engine, left)
                if self._has_work_left:
                    break
            while had_news and time.monotonic() < until + _BUSY_SECONDS:
                had_news = self._step(engine, 0.0)
        except Exception as error:  # an error of the loop itself, because each run keeps its own errors
            self._fail(error)
        finally:
            has_work_left, self._has_work_left = self._has_work_left, False
            self._running_lock.release()
        return has_work_left

    def wake(self) -> None:
        """Signal that a live run has ended with work left; any thread may call it."""
        self._has_work_left = True
        if (engine := self._engine) is not None:
            engine.wake()

    def drop(self, runs: Iterable[TargetRun]) -> None:
        """Remove runs and cancel their requests in flight; any thread may call it."""
        with self._running_lock:
            for run in runs:
                task = self._task_of.get(run)
                if task is None:
                    with suppress(ValueError):
                        self._fresh.remove(run)
                else:
                    self._drop(task)
                    task.steps.close()

    def close(self) -> None:
        """Stop the loop and cancel requests in flight."""
        self.drop(list(self._task_of))
        engine, self._engine = self._engine, None
        if engine is not None:  # in a thread, because libcurl waits for host names that are being resolved
            threading.Thread(target=engine.close, name="close http", daemon=True).start()

    def _run_all(self) -> None:
        engine = self._engine = engine_of_push()
        try:
            while self._fresh or self._tasks:
                self._step(engine, _TICK_SECONDS)
        except BaseException as error:  # an error of the loop itself, which fails the push
            self._fail(error)
        engine.close()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        for run in [*(task.run for task in self._tasks), *self._fresh]:
            run.fail(error)

    def _step(self, engine: HttpEngine, seconds: float) -> bool:
        """Continue the runs that have work, waiting at most `seconds` for responses; return whether any arrived."""
        while self._called:
            self._resume(engine, self._called.popleft())
        while self._notified:
            notified = self._task_of.get(self._notified.popleft())
            if notified is not None and notified.waits == "news":
                self._resume(engine, notified)
        if self._fresh:
            self._begin_next(engine)
        slots = engine.wait(self._longest_wait(seconds))
        for slot in slots:
            if slot.holder.waits == "news":
                self._resume(engine, slot.holder)
        now = time.monotonic()
        if self._sleeping:
            self._wake_up(engine, now)
        if now - self._polled_at >= _POLL_SECONDS:
            self._polled_at = now
            for task in [task for task in self._tasks if task.waits == "news"]:
                self._resume(engine, task)
        return bool(slots)

    def _wake_up(self, engine: HttpEngine, now: float) -> None:
        for task in [task for task in self._sleeping if _is_due(task, now)]:
            del self._sleeping[task]
            self._resume(engine, task)

    def _longest_wait(self, seconds: float) -> float:
        """Return how long to wait for a response, at most `seconds`."""
        if self._fresh or self._called or self._notified or self._has_work_left:
            return 0.0
        seconds = min(seconds, _TICK_SECONDS)
        if not self._sleeping:
            return seconds
        return max(0.0, min(seconds, min(task.until for task in self._sleeping) - time.monotonic()))

    def _begin_next(self, engine: HttpEngine) -> None:
        for _ in range(min(_BEGUN_AT_ONCE, len(self._fresh))):
            run = self._fresh.popleft()
            slot = TransferSlot(engine)
            slot.holder = task = _Task(run, run.steps(slot))
            self._tasks[task] = None
            self._task_of[run] = task
            self._resume(engine, task)

    def _resume(self, engine: HttpEngine, task: _Task) -> None:
        try:
            step = next(task.steps)
        except StopIteration:
            self._drop(task)
            return
        if step is None:
            task.waits = "news"
        elif isinstance(step, Sleep):
            task.waits, task.sleep, task.until = "sleep", step, time.monotonic() + step.seconds
            self._sleeping[task] = None
        elif isinstance(step, OwnThread):
            self._drop(task)
            self._threads.add(partial(run_to_completion, task.steps))
        else:
            task.waits = "call"
            self._blocking_calls.add(partial(self._call, engine, task, step))

    def _drop(self, task: _Task) -> None:
        self._tasks.pop(task, None)  # a task that is dropped during a call is resumed, and ends, after the call
        self._task_of.pop(task.run, None)
        self._sleeping.pop(task, None)

    def _call(self, engine: HttpEngine, task: _Task, blocking_call: BlockingCall | SharedFlush) -> None:
        blocking_call.run()
        self._called.append(task)
        engine.wake()


def _is_due(task: _Task, now: float) -> bool:
    return now >= task.until or (task.sleep is not None and task.sleep.woken.is_set())
