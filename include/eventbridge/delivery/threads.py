"""Provides a pool of threads for blocking jobs. It has as many threads as are useful, up to a limit, and none is idle.

Targets on one disk wait briefly for each other, so that one sync of the disk serves all of them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, Protocol

from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.steps import SharedFlush, Steps, run_to_completion

Job = Callable[[], object]

#: The maximum number of a chunk's or open batch's targets that block a thread at the same time; other targets wait.
THREADS_AT_ONCE: Final = 64

#: The seconds between two checks whether more threads would help.
_POLL_SECONDS = 0.05
#: A job that takes longer than this many seconds is assumed to spend most of them waiting, so that more threads would
#: complete more jobs.
_JOB_SECONDS = 0.006


class SpareWork(Protocol):
    """Work for a thread that has no job. `do` does a part of it and never raises."""

    def __bool__(self) -> bool:
        """Return whether any work is waiting."""

    def do(self) -> None:
        """Do a part of the waiting work, if any."""


class Threads:
    """Runs jobs in order, at most `max_threads` at a time; a job must not raise.

    It begins with at most `first` threads (by default `max_threads`), because busy threads take the interpreter from
    each other at every system call. `poll` adds threads if the existing ones mostly wait. A thread without a job does
    the `spare` work. The threads do not keep the process from exiting, because a call may hang forever.
    """

    def __init__(
        self, name: str, max_threads: int, *, first: int | None = None, spare: SpareWork | None = None
    ) -> None:
        self._name = name
        self._most = max_threads
        self._limit = max_threads if first is None else first
        self._spare = spare
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._running: set[threading.Thread] = set()
        self._polled_at, self._taken = time.monotonic(), 0

    def add(self, job: Job) -> None:
        """Add a job; any thread may call it."""
        self.add_all([job])

    def add_all(self, jobs: Iterable[Job]) -> None:
        """Add jobs; any thread may call it. Adding thousands one by one would start a thread for almost every job."""
        with self._lock:
            self._waiting.extend(jobs)
        self._start(len(self._waiting))

    def poll(self) -> None:
        """Double the number of threads, up to the limit, if there is work and jobs are slow. Call it often."""
        now = time.monotonic()
        if now - self._polled_at < _POLL_SECONDS:
            return
        with self._lock:
            running, taken, self._taken = len(self._running), self._taken, 0
        slow = taken * _JOB_SECONDS < running * (now - self._polled_at)
        self._polled_at = now
        work = len(self._waiting) + bool(self._spare)
        if slow and work:
            self._limit = min(self._most, max(1, 2 * running))
            self._start(work)

    def running(self) -> list[threading.Thread]:
        """Return the threads that have work, so that the caller can join them."""
        with self._lock:
            return [thread for thread in self._running if thread.ident is not None]

    def _start(self, work: int) -> None:
        with self._lock:
            number = min(self._limit - len(self._running), work)
            fresh = [threading.Thread(target=self._run, name=self._name, daemon=True) for _ in range(number)]
            self._running.update(fresh)
        for thread in fresh:
            thread.start()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                job()
        except BaseException:
            with self._lock:
                self._running.discard(threading.current_thread())
            raise

    def _next(self) -> Job | None:
        """Return the next job; None if no job is waiting and this thread has left the pool."""
        with self._lock:
            self._taken += 1
            if self._waiting:
                return self._waiting.popleft()
            if self._spare:
                return self._spare.do
            self._running.discard(threading.current_thread())
            return None


#: The number of waiting runs at which a job's thread flushes. Each waiting run keeps a file open.
_FLUSH_AT_RUNS = 128
#: The seconds that runs may wait before a job's thread flushes them, even if there are few.
_FLUSH_AT_SECONDS = 0.25


class SharedFlushes:
    """Executes runs in the threads that call their jobs, and keeps runs that have written data until the data is
    flushed.

    It is the `spare` work of `Threads`: a thread flushes when enough runs are waiting, or when it has nothing else to
    do. A disk that hangs blocks its targets and one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[tuple[SharedFlush, Steps[None]]]] = defaultdict(list)
        self._count = 0
        self._since = 0.0

    def __bool__(self) -> bool:
        """Return whether any run is waiting."""
        return self._count > 0

    def job(self, run: TargetRun) -> Job:
        """Return the job of a run."""
        return partial(self._run_job, run)

    def do(self) -> None:
        """Flush all runs of the disk that has waited longest, and continue these runs."""
        waiting = self._take()
        if not waiting:
            return
        SharedFlush.run_all([flush for flush, _ in waiting])
        for _, steps in waiting:
            self._resume(steps)

    def _run_job(self, run: TargetRun) -> None:
        self._resume(run.steps(None))
        if self._count >= _FLUSH_AT_RUNS or (self._count and time.monotonic() - self._since >= _FLUSH_AT_SECONDS):
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
