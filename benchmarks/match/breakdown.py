"""A breakdown of the kernel's time: timed functions, and comparisons of rule sets.

1. `scan` and `judge` are what a matcher calls for each block of 1,024 events. While it is measured they are called
   through a clock, of which an event pays a nanosecond.
2. `judge` classifies leaves, then makes the AND and writes what is left. The same rules are compiled once more, each
   with one more field that no event has: they have the same look-ups, the same classes and rows as long, but the AND
   ends at that field, and nothing is written. What that matcher's `judge` takes less is the AND and its output.
3. What neither takes is Python around them: blocks, Arrow's arrays, copies of what was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa

from eventbridge.matching import Matcher
from eventbridge.matching.kernel import matcher as product

IMPOSSIBLE: Final = {"never": [{"exists": True}]}
"""A field that no event of the benchmark has."""

_BATCH: Final = 20_000


class Shares(NamedTuple):
    """Nanoseconds of CPU time an event."""

    scan: float
    classify: float
    judge: float  # the AND, and writing what is left
    around: float

    @property
    def all(self) -> float:
        """What an event takes in all."""
        return sum(self)


class _Clocked(NamedTuple):
    events: int
    matches: int
    all: int  # nanoseconds
    scan: int
    judge: int


def shares(rules: Matcher, impossible: Matcher, events: pa.Array) -> Shares:
    """Return where the time goes; `impossible` are the same rules, each with the field `IMPOSSIBLE`, or ValueError.

    Each matcher gets each half of the events once, in turn, so that what else the machine does hits both.
    """
    middle = len(events) // 2
    real = _clocked(rules, events[:middle])
    first = _clocked(impossible, events[:middle])
    second = _clocked(impossible, events[middle:])
    last = _clocked(rules, events[middle:])
    if first.matches or second.matches:
        raise ValueError("an event has the field that none has: the two rule sets cannot be compared")
    count = real.events + last.events
    scan, judge = (real.scan + last.scan) / count, (real.judge + last.judge) / count
    classify = min(judge, (first.judge + second.judge) / count)
    return Shares(scan, classify, judge - classify, (real.all + last.all) / count - scan - judge)


def _clocked(matcher: Matcher, events: pa.Array) -> _Clocked:
    spent = {"scan": 0, "judge": 0}
    matches = 0
    with _through_a_clock(spent):
        begun = time.thread_time_ns()
        for first in range(0, len(events), _BATCH):
            matches += len(matcher.match(events[first : first + _BATCH]).rules)
        whole = time.thread_time_ns() - begun
    return _Clocked(len(events), matches, whole, spent["scan"], spent["judge"])


@contextmanager
def _through_a_clock(spent: dict[str, int]) -> Iterator[None]:
    """Add to `spent`, while it lasts, the CPU time of what matchers call by these names."""
    plain = {name: getattr(product, name) for name in spent}
    for name, function in plain.items():
        setattr(product, name, _timed(function, name, spent))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(product, name, function)


def _timed(function: Callable[..., Any], name: str, spent: dict[str, int]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        begun = time.thread_time_ns()
        result = function(*arguments)
        spent[name] += time.thread_time_ns() - begun
        return result

    return timed
