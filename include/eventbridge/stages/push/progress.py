"""How one run of a target stands among the others of its batch: what it took until now, and whether it may go on."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from eventbridge.decision.breaker import Ended
from eventbridge.decision.head_of_line import Stay
from eventbridge.model.answer import Answer
from eventbridge.stages.push.steps import Nap

#: Why nothing more is started: the others have waited long enough, or even for what is in flight, or an answer would
#: come after the budget.
Cut = Literal["", "others", "answers", "budget"]


class Presence:
    """When a run began and was answered, and what the others want of it.

    `patient`: it is in the slow lane, where nobody waits for it. Its own thread writes everything but what is the
    push's: whether waiting costs nobody anything (`may_wait`), that nothing more must be started (`cut`), and who is
    told that it has begun (`at_begin`).
    """

    def __init__(self, clock: Callable[[], datetime], *, patient: bool) -> None:
        self._clock = clock
        self.may_wait: Callable[[], bool] = lambda: True
        self.at_begin: Callable[[], None] = lambda: None
        self.cut: Cut = ""
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self._sent_at: datetime | None = None  # last, of what had not been sent before
        self.hurried = False  # what it has to try again when it ends others try, and judge
        self._patient = patient
        self._idle = False
        self._naps: list[tuple[datetime, datetime]] = []
        self._woken = threading.Event()
        self._durations_ms: list[float] = []
        self._last: Answer | None = None
        self._heard_at: float | None = None
        self._stay: Stay | None = None

    @property
    def at_work(self) -> bool:
        """Whether it has not ended, and does not only wait for something to fall due."""
        return self.ended_at is None and not self._idle

    @property
    def typical(self) -> float | None:
        """The median of what its answers took, in seconds."""
        return statistics.median_low(self._durations_ms[:]) / 1000 if self._durations_ms else None

    @property
    def silent_seconds(self) -> float:
        """For how long nothing has been sent or answered, 0 before anything was."""
        return 0.0 if self._heard_at is None else time.monotonic() - self._heard_at

    def sends(self) -> None:
        """Note that something is sent."""
        self._heard_at = time.monotonic()

    def begin(self) -> datetime:
        """Note, and return, when it began."""
        self.began_at = self._clock()
        self.at_begin()
        return self.began_at

    def ended_by_budget(self, now: datetime, until: datetime) -> bool:
        """Return whether it was the budget, of which little is left from `until` on, that ended it."""
        return self.cut == "budget" or (now >= until and not self.cut)

    def answered(self, answer: Answer, *, again: bool) -> None:
        """Note an answer; `again`: to what this push had sent before."""
        if not again and (self._sent_at is None or answer.started_at > self._sent_at):
            self._sent_at = answer.started_at
        self._last = answer
        self._heard_at = time.monotonic()
        self._durations_ms.append(answer.duration_ms)

    def nap(self, seconds: float) -> Generator[Nap, None, bool]:
        """Wait until something may have fallen due, or `wake`; False, at once, if the others would have to wait too."""
        self._idle = True  # first: from now on `wake` is heard
        self.hurried = not self._patient and not self.may_wait()
        if self.hurried:
            self._idle = False
            return False
        asleep_at = self._clock()
        yield Nap(max(0.0, seconds), self._woken)
        self._woken.clear()
        self._idle = False
        self._naps.append((asleep_at, self._clock()))
        return True

    def wake(self) -> None:
        """End a nap: whether the run may go on waiting is another question now."""
        if self._idle:
            self._woken.set()

    def measure(self, others_done_at: datetime | None) -> None:
        """Note how long it took, if it has ended and had an answer; `others_done_at` None: nobody waited for it.

        Its naps do not count: it took none that the others would have had to wait for.
        """
        if self.began_at is None or self.ended_at is None or self._last is None:
            return
        last_at = self._last.started_at + timedelta(milliseconds=self._last.duration_ms)
        tail = self._busy(self._sent_at or self.began_at, last_at)
        beyond = 0.0 if others_done_at is None else self._busy(max(others_done_at, self.began_at), last_at)
        self._stay = Stay(beyond, tail, self.typical)

    def _busy(self, start: datetime, end: datetime) -> float:
        """Return how many seconds from `start` to `end` it did not nap."""
        napped = sum(
            (min(up, end) - max(down, start) for down, up in self._naps if down < end and up > start), timedelta()
        )
        return max(0.0, (end - start - napped).total_seconds())

    def told_with(self, ended: Ended) -> Ended:
        """Return what the breaker is told of the run's end, with how long it took."""
        return replace(ended, stay=self._stay, apart=self._patient)
