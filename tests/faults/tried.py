"""How many trials the crash matrix was made of, and how long they took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: The property under which a test's report has its `Tried`, as a tuple: the test may run in another process.
CRASH_MATRIX = "crash matrix"


class Tried(NamedTuple):
    """Trials, and when the first began and the last ended, by the machine's monotonic clock, in seconds."""

    trials: int
    began: float
    ended: float

    def __str__(self) -> str:
        return f"{self.trials:,} trials in {self.ended - self.began:,.0f} s"


#: All that this process has tried, in order.
TRIED: list[Tried] = []


def in_all(tried: Iterable[Tried]) -> Tried:
    """Return one or more together, which may have run side by side."""
    trials, began, ended = zip(*tried, strict=True)
    return Tried(sum(trials), min(began), max(ended))
