"""Whether new events are taken, by what is free: two lines, below and above which that changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventbridge.model.intake_stop import StopCause


class WaterLines(NamedTuple):
    """Free bytes below which intake stops, and from which it resumes; two, so that it does not do so all the time."""

    low: int
    high: int


class Room(NamedTuple):
    """What is free somewhere, None if that cannot be said, and its lines."""

    cause: StopCause
    free: int | None
    lines: WaterLines


def is_intake_stopped(was_stopped: bool, free: int | None, lines: WaterLines) -> bool:
    """Return whether intake is stopped now; never where nobody can say what is free (None)."""
    if free is None:
        return False
    return free < (lines.high if was_stopped else lines.low)


def quota_room(held: int, quota: int, resume: int) -> Room:
    """Return the room in a quota of bytes: taken up by `quota` held, free again with `resume` held or less."""
    return Room("quota", quota - held, WaterLines(1, quota - resume))


def short_of(rooms: Sequence[Room], stopped_by: StopCause | None) -> Room | None:
    """Return the first room for want of which intake is stopped now; each has lines of its own to resume at."""
    return next((each for each in rooms if is_intake_stopped(each.cause == stopped_by, each.free, each.lines)), None)
