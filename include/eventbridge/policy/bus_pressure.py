"""Decides whether a bus accepts more events now, by free space on its disk and in the store, and by backlog. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.config.quantities import write_size
from eventbridge.model.storage import StopCause, StoreQuota
from eventbridge.policy.watermarks import Room, Watermarks, quota_room, short_of

#: When a publisher may retry; a backlog shrinks sooner than disk space is freed.
DISK_RETRY_SECONDS = 60
BACKLOG_RETRY_SECONDS = 10


@dataclass(frozen=True)
class BusLook:
    """The observed state of a bus: `free_bytes` of its disk and `backlog` in events, None if it has no such thing.

    `store`: the store's use of its quota; while it is full, no runner takes events from the bus. `owner_full`: why no
    runner takes events because of a quota of the bus's owner, "": runners take them.
    """

    free_bytes: int | None
    backlog: int | None
    store: StoreQuota | None = None
    owner_full: str = ""


@dataclass(frozen=True)
class Refusal:
    """Why a bus accepts nothing now, and after how many seconds a publisher may retry."""

    reason: str
    retry_seconds: int
    cause: StopCause | None  # None: its backlog


def refusal(look: BusLook, watermarks: Watermarks, max_backlog: int | None, before: Refusal | None) -> Refusal | None:
    """Return why a bus accepts nothing now, None if it accepts events; `before`: the result of the previous check."""
    rooms = [Room("disk", look.free_bytes, watermarks)]
    if look.store is not None:
        rooms.append(quota_room(look.store.held, look.store.quota, look.store.resume))
    short = short_of(rooms, before.cause if before is not None else None)
    if short is not None:
        return Refusal(_reason(look, watermarks, short), DISK_RETRY_SECONDS, short.cause)
    if look.owner_full:
        return Refusal(look.owner_full, DISK_RETRY_SECONDS, None)
    if max_backlog is not None and look.backlog is not None and look.backlog > max_backlog:
        reason = f"{look.backlog:,} events wait on it, more than its max_backlog of {max_backlog:,}"
        return Refusal(reason, BACKLOG_RETRY_SECONDS, None)
    return None


def _reason(look: BusLook, watermarks: Watermarks, short: Room) -> str:
    if short.cause == "quota" and look.store is not None:
        return (
            f"the store holds {look.store.held:,} bytes, its quota is {write_size(look.store.quota)}; "
            f"events are taken again once it holds {write_size(look.store.resume)} or less"
        )
    return f"its disk has {look.free_bytes:,} bytes free; it takes events again from {write_size(watermarks.high)}"
