"""Flushes that several targets share: those of one disk wait for each other a moment, and for the disk once."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Hashable
from functools import partial

from eventbridge.stages.push.run import TargetRun
from eventbridge.stages.push.steps import SharedFlush, Steps, run_to_completion
from eventbridge.stages.push.threads import Job

#: Targets that are flushed together; each keeps a file open meanwhile.
_TOGETHER = 128
#: What has waited so long is flushed with however many there are.
_SECONDS = 0.25


class SharedFlushes:
    """Carries runs in whatever thread calls their jobs; those that have written wait here for their flush.

    It is to `spare` for `Threads`: a thread flushes when enough wait, and when it has nothing else to do. A disk that
    hangs holds the targets that it is flushed for, and one thread.
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
        """Return what carries a run."""
        return partial(self._run_job, run)

    def do(self) -> None:
        """Flush what has waited longest, with all of its disk, and carry on those that waited."""
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
