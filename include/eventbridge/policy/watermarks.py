"""Decides by free space whether ingestion runs, with a low and a high watermark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventbridge.model.storage import StopCause


class Watermarks(NamedTuple):
    """Free bytes below which ingestion stops, and from which it resumes; they differ so that it does not flap."""

    low: int
    high: int


class Room(NamedTuple):
    """Free bytes of a place, None if unknown, and its watermarks."""

    cause: StopCause
    free: int | None
    watermarks: Watermarks


def is_ingestion_stopped(was_stopped: bool, free: int | None, watermarks: Watermarks) -> bool:
    """Return whether ingestion is stopped now; it never is if the free bytes are unknown (None)."""
    if free is None:
        return False
    return free < (watermarks.high if was_stopped else watermarks.low)


def quota_room(held: int, quota: int, resume: int) -> Room:
    """Return the room in a quota of bytes: full with `quota` bytes held, free again with `resume` held or less."""
    return Room("quota", quota - held, Watermarks(1, quota - resume))


def short_of(rooms: Sequence[Room], stopped_by: StopCause | None) -> Room | None:
    """Return the first room whose shortage stops ingestion now; each resumes at its own watermark."""
    return next(
        (each for each in rooms if is_ingestion_stopped(each.cause == stopped_by, each.free, each.watermarks)), None
    )
