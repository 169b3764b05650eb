"""Whether a bus takes more events now, by what is free on its disk and by what waits on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.config.quantities import write_size
from eventbridge.decision.water_lines import WaterLines, is_intake_stopped

#: When a program may try again; a backlog goes sooner than a disk is made room on.
DISK_RETRY_SECONDS = 60
BACKLOG_RETRY_SECONDS = 10


@dataclass(frozen=True)
class BusLook:
    """A bus as it was seen: `free_bytes` of its disk and `backlog` in events, None where it has no such thing."""

    free_bytes: int | None
    backlog: int | None


@dataclass(frozen=True)
class Refusal:
    """Why a bus takes nothing now, and after how many seconds somebody may try again."""

    reason: str
    retry_seconds: int
    is_of_disk: bool


def refusal(look: BusLook, lines: WaterLines, max_backlog: int | None, before: Refusal | None) -> Refusal | None:
    """Return why a bus takes nothing now, None if it does; `before`: what was said at the look before."""
    was_stopped = before is not None and before.is_of_disk
    if is_intake_stopped(was_stopped, look.free_bytes, lines):
        reason = f"its disk has {look.free_bytes:,} bytes free; it takes events again from {write_size(lines.high)}"
        return Refusal(reason, DISK_RETRY_SECONDS, is_of_disk=True)
    if max_backlog is not None and look.backlog is not None and look.backlog > max_backlog:
        reason = f"{look.backlog:,} events wait on it, more than its max_backlog of {max_backlog:,}"
        return Refusal(reason, BACKLOG_RETRY_SECONDS, is_of_disk=False)
    return None
