"""Records how many trials the crash matrix ran, and how long they took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: The property of a test's report that has its `Tried`, as a tuple, because the test may run in another process.
CRASH_MATRIX = "crash matrix"


class Tried(NamedTuple):
    """The number of trials, and when the first began and the last ended, in seconds of the monotonic clock."""

    trials: int
    began: float
    ended: float

    def __str__(self) -> str:
        return f"{self.trials:,} trials in {self.ended - self.began:,.0f} s"


#: All that this process has tried, in order.
TRIED: list[Tried] = []


def in_all(tried: Iterable[Tried]) -> Tried:
    """Return the sum of one or more, which may have run concurrently."""
    trials, began, ended = zip(*tried, strict=True)
    return Tried(sum(trials), min(began), max(ended))
