"""The record of the buffer stage about a landed sub-range."""

from __future__ import annotations

from msgspec import Struct

from eventbridge.model.last_message import LastMessage
from eventbridge.model.partition import Partition


class LandedRange(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="range"):
    """Offsets `start` (included) to `end` (excluded) of one partition in one buffer file; each was read or is a gap."""

    partition: Partition
    start: int
    end: int
    read: int = 0  # valid + duplicate + malformed + tombstone
    valid: int = 0
    duplicate: int = 0
    malformed: int = 0
    tombstone: int = 0
    size: int = 0  # body bytes
    gaps: tuple[tuple[int, int], ...] = ()  # offsets that are not in the log: first (included), last (excluded)
    last: LastMessage | None = None
