"""Publish and settle rates of a partition, its runner's capacity, and when its lag is gone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from eventbridge.model.partition import Move

#: The window of the rates: longer than a batch, short enough to be current.
WINDOW = timedelta(minutes=5)
#: The capacity is the median of so many full batches, so that one batch delayed by a slow target does not decide it.
FULL_BATCHES = 10


@dataclass(frozen=True)
class Flow:
    """Rates of one partition in events a second, over the last five minutes.

    `capacity` is the median of the last ten batches that took all they were allowed to; None: there was none, so it is
    unknown. `drains_in_seconds`: when the lag is gone if both rates stay the same; None: never, or unknown.
    """

    published: float
    settled: float
    capacity: float | None
    drains_in_seconds: float | None

    @property
    def grows(self) -> bool:
        """Return whether more is published than can be settled, so that the lag never ends."""
        return self.capacity is not None and self.drains_in_seconds is None


def flow(moves: Sequence[Move], published: int, lag: int, now: datetime) -> Flow:
    """Return the flow of a partition with `published` events in the window and `lag` waiting events.

    `moves` are those of committed batches of this partition, newest first.
    """
    settled = sum(move.events for move in moves if move.committed_at > now - WINDOW)
    seconds = WINDOW.total_seconds()
    capacity = _capacity(moves)
    return Flow(published / seconds, settled / seconds, capacity, _drains_in(lag, capacity, published / seconds))


def _capacity(moves: Sequence[Move]) -> float | None:
    full = [move for move in moves if move.is_full and move.committed_at > move.planned_at][:FULL_BATCHES]
    speeds = [move.events / (move.committed_at - move.planned_at).total_seconds() for move in full]
    return median(speeds) if speeds else None


def _drains_in(lag: int, capacity: float | None, published: float) -> float | None:
    if lag == 0:
        return 0.0
    if capacity is None or capacity <= published:
        return None
    return lag / (capacity - published)
