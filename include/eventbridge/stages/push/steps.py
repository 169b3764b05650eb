"""What a run of a target does between two sends, so that a thread of its own, or one of many, can carry it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from eventbridge.targets.steps import Aside


@dataclass(frozen=True, slots=True)
class Nap:
    """Go on after so many seconds, or when `woken` is set."""

    seconds: float
    woken: threading.Event


@dataclass(frozen=True, slots=True)
class OwnThread:
    """Go on in a thread of its own: what comes holds the thread that it runs in."""


OWN_THREAD = OwnThread()

Wait = Nap | Aside | OwnThread | None
Result = TypeVar("Result")
#: What waits in between, and comes to a result. None: there is nothing to do until its seat has news.
Steps = Generator[Wait, None, Result]


def drive(steps: Steps[None]) -> None:
    """Carry a run to its end in this thread."""
    for step in steps:
        if isinstance(step, Nap):
            step.woken.wait(step.seconds)
        elif isinstance(step, Aside):
            step.run()
