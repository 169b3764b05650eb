"""Where a message lies on a bus: topic, broker, queue."""

from __future__ import annotations

from typing import NamedTuple


class Queue(NamedTuple):
    """One queue (partition) of a topic of a bus; `broker` is empty where a bus has no brokers."""

    topic: str
    broker: str
    queue_id: int
