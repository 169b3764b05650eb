"""Whether new events are taken, by what is free: two watermarks, below and above which that changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventbridge.model.ingestion_stop import StopCause


class Watermarks(NamedTuple):
    """Free bytes below which ingestion stops, and from which it resumes; two, so that it does not flap."""

    low: int
    high: int


class Room(NamedTuple):
    """What is free somewhere, None if that cannot be said, and its watermarks."""

    cause: StopCause
    free: int | None
    watermarks: Watermarks


def is_ingestion_stopped(was_stopped: bool, free: int | None, watermarks: Watermarks) -> bool:
    """Return whether ingestion is stopped now; never where nobody can say what is free (None)."""
    if free is None:
        return False
    return free < (watermarks.high if was_stopped else watermarks.low)


def quota_room(held: int, quota: int, resume: int) -> Room:
    """Return the room in a quota of bytes: taken up by `quota` held, free again with `resume` held or less."""
    return Room("quota", quota - held, Watermarks(1, quota - resume))


def short_of(rooms: Sequence[Room], stopped_by: StopCause | None) -> Room | None:
    """Return the first room for want of which ingestion is stopped now; each has watermarks of its own to resume at."""
    return next(
        (each for each in rooms if is_ingestion_stopped(each.cause == stopped_by, each.free, each.watermarks)), None
    )
