"""Threads that carry what holds a thread: as many as there is work for, up to a limit, and none that rests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

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
        with self._lock:
            self._waiting.append(job)
            if len(self._running) >= self._most:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._running.add(thread)
        thread.start()

    def running(self) -> list[threading.Thread]:
        """Return the threads that have work, for somebody to wait for."""
        with self._lock:
            return list(self._running)

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
