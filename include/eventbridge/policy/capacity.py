"""Decides, from free space, quotas and backlog, whether a bus accepts events and whether ingestion is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventbridge.config.quantities import write_size
from eventbridge.model.storage import StopCause, StoreQuota

#: The number of seconds that a refused publisher must wait before it retries. A backlog shrinks sooner than disk space
#: is freed.
DISK_RETRY_SECONDS = 60
BACKLOG_RETRY_SECONDS = 10


@dataclass(frozen=True)
class BusLoad:
    """The observed load of a bus: the `free_bytes` of its disk and its `backlog` in events, each None if unknown.

    `store` says how much of the store's quota is used; while the quota is used up, no runner takes events from the bus.
    `owner_full` says which quota of the bus's owner keeps runners from taking events; it is empty if none does.
    """

    free_bytes: int | None
    backlog: int | None
    store: StoreQuota | None = None
    owner_full: str = ""


@dataclass(frozen=True)
class Refusal:
    """The reason why a bus is not accepting events at the moment, and the number of seconds after which a publisher may
    retry."""

    reason: str
    retry_seconds: int
    cause: StopCause | None  # None if the bus's backlog or a quota of its owner is the cause


def refusal(load: BusLoad, watermarks: Watermarks, max_backlog: int | None, before: Refusal | None) -> Refusal | None:
    """Return why a bus is not accepting events at the moment; None if it is. `before` is the previous result.

    A space that was short stays short until it reaches its high watermark.
    """
    spaces = [FreeSpace("disk", load.free_bytes, watermarks)]
    if load.store is not None:
        spaces.append(quota_space(load.store.used, load.store.quota, load.store.resume))
    short = short_of(spaces, before.cause if before is not None else None)
    if short is not None:
        return Refusal(_reason(load, watermarks, short), DISK_RETRY_SECONDS, short.cause)
    if load.owner_full:
        return Refusal(load.owner_full, DISK_RETRY_SECONDS, None)
    if max_backlog is not None and load.backlog is not None and load.backlog > max_backlog:
        reason = f"{load.backlog:,} events are waiting on it, more than its max_backlog of {max_backlog:,}"
        return Refusal(reason, BACKLOG_RETRY_SECONDS, None)
    return None


def _reason(load: BusLoad, watermarks: Watermarks, short: FreeSpace) -> str:
    if short.cause == "quota" and load.store is not None:
        return (
            f"the store holds {load.store.used:,} bytes, its quota is {write_size(load.store.quota)}; "
            f"events are accepted again once it holds {write_size(load.store.resume)} or less"
        )
    return f"its disk has {load.free_bytes:,} bytes free; it accepts events again at {write_size(watermarks.high)}"


class Watermarks(NamedTuple):
    """The free bytes below which ingestion stops and at which it resumes; they differ to keep it from flapping."""

    low: int
    high: int


class FreeSpace(NamedTuple):
    """The free bytes of a disk or a quota, None if unknown, and its watermarks."""

    cause: StopCause
    free: int | None
    watermarks: Watermarks


def is_ingestion_stopped(was_stopped: bool, free: int | None, watermarks: Watermarks) -> bool:
    """Return whether ingestion is stopped now; it never is if the free bytes are unknown (None)."""
    if free is None:
        return False
    return free < (watermarks.high if was_stopped else watermarks.low)


def quota_space(used: int, quota: int, resume: int) -> FreeSpace:
    """Return the free space of a quota: ingestion stops at `quota` bytes used and resumes at `resume` or fewer."""
    return FreeSpace("quota", quota - used, Watermarks(1, quota - resume))


def short_of(spaces: Sequence[FreeSpace], stopped_by: StopCause | None) -> FreeSpace | None:
    """Return the first space whose shortage stops ingestion now; None if there is none.

    A space that is already the cause (`stopped_by`) is short until it reaches its high watermark.
    """
    return next(
        (each for each in spaces if is_ingestion_stopped(each.cause == stopped_by, each.free, each.watermarks)), None
    )
