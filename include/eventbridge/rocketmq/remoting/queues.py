"""Where messages lie: a queue of a topic on a broker."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple


class TopicQueue(NamedTuple):
    """One queue of a topic: on which broker, and its number there."""

    topic: str
    broker: str
    number: int


def queue_of_key(queues: Sequence[TopicQueue], key: str) -> TopicQueue:
    """Return the queue that takes all messages of a key, while there are as many queues."""
    return queues[zlib.crc32(key.encode("utf-8", "surrogatepass")) % len(queues)]
