"""The CPU time that a share of a budgeted rule may take, and the signal that ends a renderer which takes more.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from eventbridge.transform.budget import Budget

#: CPU-seconds after which a renderer that went on when it was told to stop is told again.
_AGAIN_SECONDS = 0.05


class OutOfTime(BaseException):
    """Raised inside a renderer when the budget is over; no Exception, so that no renderer takes it for its own."""


class ShareBudget:
    """CPU time from now on, of this process and of those that evaluate for it, as far as it may go."""

    def __init__(self, seconds: float) -> None:
        self.of_evaluations = Budget(seconds)
        self._began = time.process_time()
        self._seconds = seconds
        self._late_at = time.monotonic() + 2 * seconds + 1

    @property
    def spent_seconds(self) -> float:
        """What was spent so far."""
        return time.process_time() - self._began + self.of_evaluations.spent_seconds

    @property
    def late(self) -> bool:
        """Whether the machine is so busy that the CPU time takes more than twice as long: no event's fault."""
        return time.monotonic() >= self._late_at

    @contextmanager
    def running(self) -> Iterator[None]:
        """Interrupt the body with OutOfTime when the budget is over; raises it at once if it is over already."""
        left = self._seconds - self.spent_seconds
        if left <= 0:
            raise OutOfTime
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's; Spark's workers have no other
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, left, _AGAIN_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let budgets interrupt the body by a signal; of no effect outside a process's main thread."""
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
