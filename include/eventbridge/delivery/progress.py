"""The progress of one target's run: when it began and ended, whether it waits, and how long its responses took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from datetime import datetime

from eventbridge.delivery.steps import Sleep


class Progress:
    """When a run began and ended, whether it waits, and how long its responses took.

    `may_always_wait`: it may always wait for something to be due; else `may_wait` decides. The thread of the run writes
    everything except `may_wait` and `on_begin`, which belong to the push.
    """

    def __init__(self, clock: Callable[[], datetime], *, may_always_wait: bool) -> None:
        self._clock = clock
        self.may_wait: Callable[[], bool] = lambda: True
        self.on_begin: Callable[[], None] = lambda: None
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.leaves_retries = False  # the slow lane makes the retries that fall due soon, and judges the target by them
        self.response_seconds = 0.0
        self._longest_seconds = 0.0
        self._may_always_wait = may_always_wait
        self._is_waiting = False
        self._woken = threading.Event()

    @property
    def is_at_work(self) -> bool:
        """Whether it has not ended, and does not just wait for something to be due."""
        return self.ended_at is None and not self._is_waiting

    def begin(self) -> datetime:
        """Record and return when it began."""
        self.began_at = self._clock()
        self.on_begin()
        return self.began_at

    def note_duration(self, seconds: float) -> bool:
        """Record how long one response took, and return whether it is the longest so far."""
        self.response_seconds += seconds
        is_longest = seconds > self._longest_seconds
        if is_longest:
            self._longest_seconds = seconds
        return is_longest

    def sleep(self, seconds: float) -> Generator[Sleep, None, bool]:
        """Wait until something may be due, or `wake`; return False at once if other targets would have to wait too."""
        self._is_waiting = True  # first: from now on `wake` has an effect
        self.leaves_retries = not (self._may_always_wait or self.may_wait())
        if self.leaves_retries:
            self._is_waiting = False
            return False
        yield Sleep(max(0.0, seconds), self._woken)
        self._woken.clear()
        self._is_waiting = False
        return True

    def wake(self) -> None:
        """End a sleep, so that the run checks again whether it may wait."""
        if self._is_waiting:
            self._woken.set()
