"""Limits the CPU time of budgeted rules, per share and in total, and decides the order of their shares in a batch.

Each rule has its own budget, and all shares that one worker routes for a batch have a total budget. Without the total,
each rule that loops would delay the batch by a full budget. The total is per worker, because workers do not know what
the others have spent. A share that begins before the total is spent keeps its full budget.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from types import FrameType

from eventbridge.model.file_detail import RoutedShare
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult
from eventbridge.transform.rendered import Budget

#: The reasons for deferring a share or a part of it: the total budget was spent before its turn, its own budget was
#: spent, or it cannot be routed. An event for which `where` fails also has the reason ROUTE_FAILED.
CROWDED = "crowded"
BUDGET = "budget"
ROUTE_FAILED = "route_failed"


class TotalBudget:
    """Counts the time that a process spends on the shares of the current job.

    A worker charges CPU time. A caller that sends shares to a router one at a time charges the time that it waited.
    """

    def __init__(self) -> None:
        self._attempt = ""
        self._seconds = 0.0

    def is_over(self, job: RouteJob) -> bool:
        """Return whether no further share of a job may start. It is never True before the first share."""
        return job.attempt == self._attempt and 0 < job.budgeted_seconds <= self._seconds

    def charge(self, job: RouteJob, seconds: float) -> None:
        """Add the seconds that a share took."""
        if job.attempt != self._attempt:
            self._attempt, self._seconds = job.attempt, 0.0
        self._seconds += seconds


def shuffle_shares(batch_id: str, shares: Iterable[RuleShare]) -> list[RuleShare]:
    """Return the shares in a pseudo-random order that differs between batches but is the same in every attempt."""
    return sorted(shares, key=lambda share: blake2b(f"{batch_id} {share.rule}".encode()).digest())


def deferred(share: RuleShare, reason: str, error: str = "") -> SliceResult:
    """Return the result for a share of which no event was routed, so that the whole share becomes a deferred match."""
    return SliceResult(
        share.slice_id, None, 0, RoutedShare(rule=share.rule, left=share.files, reason=reason, error=error)
    )


#: A renderer that ignored an interruption is interrupted again after this many CPU-seconds.
_AGAIN_SECONDS = 0.05


class OutOfTime(BaseException):
    """Raised inside a renderer when the budget is spent. It is a BaseException so that no renderer catches it."""


class ShareBudget:
    """Limits the CPU time that this process and its evaluators use from now on."""

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
        """Whether so much time has passed that the machine must be busy. The share then ends early, but no event fails
        because of it."""
        return time.monotonic() >= self._late_at

    @contextmanager
    def running(self) -> Iterator[None]:
        """Interrupt the body with OutOfTime when the budget is spent.

        Raises OutOfTime immediately if it is already spent.
        """
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
    """Allow budgets to interrupt the body with a signal. Outside the main thread, it has no effect."""
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
