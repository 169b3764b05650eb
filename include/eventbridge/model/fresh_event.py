"""A valid event in memory, read from its bus and not yet in any file."""

from __future__ import annotations

from typing import NamedTuple

from eventbridge.model.partition import Partition


class FreshEvent(NamedTuple):
    """A valid event as a bus gave it; `published_at` in microseconds since 1970."""

    partition: Partition
    offset: int
    published_at: int
    event_id: str
    source: str
    body: bytes
