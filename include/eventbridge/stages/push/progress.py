"""How far one run of a target is: when it began and ended, whether it rests, and how long its responses took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from datetime import datetime

from eventbridge.stages.push.steps import Sleep


class Progress:
    """When a run began and ended, whether it rests, and how long its responses took.

    `rests_freely`: it may always wait for something to fall due; else `may_wait` says whether it may. The thread of the
    run writes everything but `may_wait` and `at_begin`, which are the push's.
    """

    def __init__(self, clock: Callable[[], datetime], *, rests_freely: bool) -> None:
        self._clock = clock
        self.may_wait: Callable[[], bool] = lambda: True
        self.at_begin: Callable[[], None] = lambda: None
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.leaves_retries = False  # the slow lane makes the retries that fall due soon, and judges the target by them
        self.response_seconds = 0.0
        self._longest_seconds = 0.0
        self._rests_freely = rests_freely
        self._rests = False
        self._woken = threading.Event()

    @property
    def at_work(self) -> bool:
        """Whether it has not ended, and does not only wait for something to fall due."""
        return self.ended_at is None and not self._rests

    def begin(self) -> datetime:
        """Note, and return, when it began."""
        self.began_at = self._clock()
        self.at_begin()
        return self.began_at

    def note_status(self, seconds: float) -> bool:
        """Note how long one response took, and return whether none took longer."""
        self.response_seconds += seconds
        is_longest = seconds > self._longest_seconds
        if is_longest:
            self._longest_seconds = seconds
        return is_longest

    def sleep(self, seconds: float) -> Generator[Sleep, None, bool]:
        """Wait until something may have fallen due, or `wake`; False, at once, if the others would have to wait too."""
        self._rests = True  # first: from now on `wake` has an effect
        self.leaves_retries = not (self._rests_freely or self.may_wait())
        if self.leaves_retries:
            self._rests = False
            return False
        yield Sleep(max(0.0, seconds), self._woken)
        self._woken.clear()
        self._rests = False
        return True

    def wake(self) -> None:
        """End a sleep: whether the run may go on waiting is another question now."""
        if self._rests:
            self._woken.set()
