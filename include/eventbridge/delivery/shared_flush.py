"""Flushes that several targets share: targets on one disk wait a moment for each other, and once for the disk."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Hashable
from functools import partial

from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.steps import SharedFlush, Steps, run_to_completion
from eventbridge.delivery.threads import Job

#: Maximum targets that are flushed together; each keeps a file open meanwhile.
_TOGETHER = 128
#: Runs that have waited so long are flushed, however few they are.
_SECONDS = 0.25


class SharedFlushes:
    """Runs targets in the threads that call their jobs; runs that have written wait here for their flush.

    It is the `spare` work of `Threads`: a thread flushes when enough runs wait, and when it has nothing else to do. A
    disk that hangs blocks its targets and one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[tuple[SharedFlush, Steps[None]]]] = defaultdict(list)
        self._count = 0
        self._since = 0.0

    def __bool__(self) -> bool:
        """Return whether any run waits."""
        return self._count > 0

    def job(self, run: TargetRun) -> Job:
        """Return the job of a run."""
        return partial(self._run_job, run)

    def do(self) -> None:
        """Flush the runs that have waited longest, with all runs of their disk, and continue them."""
        waiting = self._take()
        if not waiting:
            return
        SharedFlush.run_all([flush for flush, _ in waiting])
        for _, steps in waiting:
            self._resume(steps)

    def _run_job(self, run: TargetRun) -> None:
        self._resume(run.steps(None))
        if self._count >= _TOGETHER or (self._count and time.monotonic() - self._since >= _SECONDS):
            self.do()

    def _resume(self, steps: Steps[None]) -> None:
        flush = run_to_completion(steps, shares=True)
        if flush is None:
            return
        with self._lock:
            if not self._count:
                self._since = time.monotonic()
            self._count += 1
            self._waiting[flush.disk].append((flush, steps))

    def _take(self) -> list[tuple[SharedFlush, Steps[None]]]:
        with self._lock:
            if not self._waiting:
                return []
            found = self._waiting.pop(next(iter(self._waiting)))
            self._count -= len(found)
            self._since = time.monotonic()
            return found
