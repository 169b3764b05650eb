"""How fast a partition is published to and settled, what its runner can settle, and when its lag is gone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from eventbridge.model.move import Move

#: Speeds are those of so long: longer than a batch, short enough to tell of now.
WINDOW = timedelta(minutes=5)
#: A capacity is the median of so many full batches: one that a slow target delayed does not decide it.
FULL_BATCHES = 10


@dataclass(frozen=True)
class Flow:
    """Speeds of one partition in events a second, over the last five minutes.

    `capacity` is the median of the last ten batches that took all they were allowed; None: there was none, so that
    nobody knows. `drains_in_seconds` is when the lag is gone if both speeds stay; None: never, or nobody knows.
    """

    published: float
    settled: float
    capacity: float | None
    drains_in_seconds: float | None

    @property
    def grows(self) -> bool:
        """Whether more is published than can be settled, so that the lag never ends."""
        return self.capacity is not None and self.drains_in_seconds is None


def flow(moves: Sequence[Move], published: int, lag: int, now: datetime) -> Flow:
    """Return the flow of a partition of which so many events were published in the window and so many wait.

    `moves` are those of committed batches of this partition, the newest first.
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
