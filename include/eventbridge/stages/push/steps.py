"""What a run of a target does between two sends, so that a thread of its own, or one of many, can carry it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eventbridge.targets.protocol import SharingTarget
from eventbridge.targets.steps import BlockingCall


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on after so many seconds, or when `woken` is set."""

    seconds: float
    woken: threading.Event


@dataclass(frozen=True, slots=True)
class OwnThread:
    """Go on in a thread of its own: what comes holds the thread that it runs in."""


class SharedFlush:
    """A flush that may wait for those of other targets of its `disk`, so that they are made together."""

    __slots__ = ("_error", "_lost", "_target", "disk")

    def __init__(self, target: SharingTarget) -> None:
        self._target = target
        self._lost: str | None = None
        self._error: BaseException | None = None
        self.disk: Hashable = target.disk

    def result(self) -> str | None:
        """Return what was lost, None: nothing; or raise what was raised."""
        if self._error is not None:
            raise self._error
        return self._lost

    def run(self) -> None:
        """Make it by itself; raises nothing."""
        self.run_all([self])

    @staticmethod
    def run_all(flushes: Sequence[SharedFlush]) -> None:
        """Make several, all of one disk; raises nothing."""
        try:
            lost = flushes[0]._target.flush_together([flush._target for flush in flushes])
            for flush, each in zip(flushes, lost, strict=True):
                flush._lost = each
        except BaseException as error:  # raised where the result is asked for
            for flush in flushes:
                flush._error = error


OWN_THREAD = OwnThread()

Wait = Sleep | BlockingCall | SharedFlush | OwnThread | None
Result = TypeVar("Result")
#: What waits in between, and comes to a result. None: there is nothing to do until its transfer slot has news.
Steps = Generator[Wait, None, Result]


def run_to_completion(steps: Steps[None], *, shares: bool = False) -> SharedFlush | None:
    """Carry a run to its end in this thread, or `shares`: until it wants a flush, which is returned."""
    for step in steps:
        if isinstance(step, Sleep):
            step.woken.wait(step.seconds)
        elif isinstance(step, SharedFlush) and shares:
            return step
        elif isinstance(step, BlockingCall | SharedFlush):
            step.run()
    return None
