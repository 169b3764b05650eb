"""Represents the queues of a topic, each on one broker, and chooses the queue of a key."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple


class TopicQueue(NamedTuple):
    """One queue of a topic: its broker, and its number there."""

    topic: str
    broker: str
    number: int


def queue_of_key(queues: Sequence[TopicQueue], key: str) -> TopicQueue:
    """Return the queue of a key, which stays the same while the number of queues does."""
    return queues[zlib.crc32(key.encode("utf-8", "surrogatepass")) % len(queues)]
