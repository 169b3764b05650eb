"""Whether new events are taken, by what is free in the store: two lines, below and above which that changes. Pure."""

from __future__ import annotations

from typing import NamedTuple


class WaterLines(NamedTuple):
    """Free bytes below which intake stops, and from which it resumes; two, so that it does not do so all the time."""

    low: int
    high: int


def is_intake_stopped(was_stopped: bool, free: int | None, lines: WaterLines) -> bool:
    """Return whether intake is stopped now; never where the store cannot say what is free (None)."""
    if free is None:
        return False
    return free < (lines.high if was_stopped else lines.low)
