"""Threads that carry what holds a thread: as many as there is work for, up to a limit, and none that rests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

Job = Callable[[], None]


class Threads:
    """Runs jobs in the order they come, at most `most` at a time; a job raises nothing.

    The threads do not keep a process from ending, as one may hang in a call that nothing ends.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._running: set[threading.Thread] = set()

    def add(self, job: Job) -> None:
        """Have a job run; any thread may."""
        self.add_all([job])

    def add_all(self, jobs: Iterable[Job]) -> None:
        """Have jobs run; any thread may. To add thousands one by one starts a thread for nearly each of them."""
        with self._lock:
            self._waiting.extend(jobs)
            number = min(self._most - len(self._running), len(self._waiting))
            fresh = [threading.Thread(target=self._run, name=self._name, daemon=True) for _ in range(number)]
            self._running.update(fresh)
        for thread in fresh:
            thread.start()

    def running(self) -> list[threading.Thread]:
        """Return the threads that have work, for somebody to wait for."""
        with self._lock:
            return [thread for thread in self._running if thread.ident is not None]

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running.discard(threading.current_thread())
                    return
                job = self._waiting.popleft()
            try:
                job()
            except BaseException:
                with self._lock:
                    self._running.discard(threading.current_thread())
                raise
