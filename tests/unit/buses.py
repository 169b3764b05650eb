"""What the tests of the embedded bus share: a moment, a clock that ticks, and the one partition of a small bus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from eventbridge.model.partition import Partition

START = datetime(2026, 3, 1, tzinfo=UTC)
PARTITION = Partition("events", "", 0)


def at_start() -> datetime:
    """Return one fixed moment."""
    return START


def ticking() -> Callable[[], datetime]:
    """Return a clock that moves on by a second each time it is asked."""
    seconds = iter(range(1_000_000))
    return lambda: START + timedelta(seconds=next(seconds))
