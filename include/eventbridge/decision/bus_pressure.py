"""Whether a bus takes more events now, by the room on its disk and in the store, and by what waits on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.config.quantities import write_size
from eventbridge.decision.watermarks import Room, Watermarks, quota_room, short_of
from eventbridge.model.ingestion_stop import StopCause
from eventbridge.model.store_size import StoreQuota

#: When a program may try again; a backlog goes sooner than a disk is made room on.
DISK_RETRY_SECONDS = 60
BACKLOG_RETRY_SECONDS = 10


@dataclass(frozen=True)
class BusLook:
    """A bus as it was seen: `free_bytes` of its disk and `backlog` in events, None where it has no such thing.

    `store`: how the store stands to its quota; while it is full no runner takes events off the bus. `owner_full`: why
    none takes any for a quota of the bus's owner, "": they do.
    """

    free_bytes: int | None
    backlog: int | None
    store: StoreQuota | None = None
    owner_full: str = ""


@dataclass(frozen=True)
class Refusal:
    """Why a bus takes nothing now, and after how many seconds somebody may try again."""

    reason: str
    retry_seconds: int
    cause: StopCause | None  # None: its backlog


def refusal(look: BusLook, watermarks: Watermarks, max_backlog: int | None, before: Refusal | None) -> Refusal | None:
    """Return why a bus takes nothing now, None if it does; `before`: what was said at the look before."""
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
