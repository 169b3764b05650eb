"""The CPU budget of a budgeted rule's share, and the signal that interrupts a renderer beyond it.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from eventbridge.transform.rendered import Budget

#: CPU-seconds after which a renderer that ignored an interruption is interrupted again.
_AGAIN_SECONDS = 0.05


class OutOfTime(BaseException):
    """Raised inside a renderer when the budget is spent; a BaseException, so that no renderer catches it."""


class ShareBudget:
    """A limit of CPU time from now on, of this process and its evaluators."""

    def __init__(self, seconds: float) -> None:
        self.of_evaluations = Budget(seconds)
        self._began = time.process_time()
        self._seconds = seconds
        self._late_at = time.monotonic() + 2 * seconds + 1

    @property
    def spent_seconds(self) -> float:
        """The CPU time spent so far, in seconds."""
        return time.process_time() - self._began + self.of_evaluations.spent_seconds

    @property
    def is_late(self) -> bool:
        """Whether wall time exceeds twice the CPU budget because the machine is busy, which is no event's fault."""
        return time.monotonic() >= self._late_at

    @contextmanager
    def running(self) -> Iterator[None]:
        """Interrupt the body with OutOfTime when the budget is spent; raises it at once if it is spent already."""
        left = self._seconds - self.spent_seconds
        if left <= 0:
            raise OutOfTime
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach only the main thread; Spark's workers have no other
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, left, _AGAIN_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


@contextmanager
def interruptible() -> Iterator[None]:
    """Allow budgets to interrupt the body by a signal; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime
