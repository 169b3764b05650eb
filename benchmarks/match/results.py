"""The results of the measurements."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from benchmarks.match.breakdown import Shares
from benchmarks.match.checks import Checks
from benchmarks.match.kernel import Pass
from benchmarks.match.sets import Key
from benchmarks.match.worker import Memory


@dataclass
class Results:
    """The passes of each counted round, and single figures by name."""

    passes: dict[Key, list[Pass]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    shares: dict[int, list[Shares]] = field(default_factory=lambda: defaultdict(list))
    memory: Memory = field(default_factory=lambda: Memory(0, 0, 0, 0))
    first_seconds: float = 0.0
    worker: Pass | None = None
    checks: Checks = field(default_factory=Checks)

    def rates(self, key: Key) -> list[float]:
        """Return the rates of each round, in events."""
        return [each.rate for each in self.passes[key]]

    def rate(self, key: Key) -> float:
        """Return the median of the rounds' rates."""
        return statistics.median(self.rates(key))

    def mean_bytes(self, key: Key) -> float:
        """Return the mean length of the events that the kernel got."""
        passes = self.passes[key]
        return sum(each.bytes for each in passes) / sum(each.events for each in passes)

    def ratio(self, key: Key, other: Key) -> float:
        """Return how many times faster one is than another: the median over the rounds."""
        pairs = zip(self.rates(key), self.rates(other), strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)
