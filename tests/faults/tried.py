"""How many trials the crash matrix was made of, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass

#: The property under which a test's report has its `Tried`, as a pair: the test may run in another process.
CRASH_MATRIX = "crash matrix"


@dataclass
class Tried:
    """Trials, and the seconds that they took."""

    trials: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.trials:,} trials in {self.seconds:,.0f} s"


#: All that this process has tried.
TRIED = Tried()
