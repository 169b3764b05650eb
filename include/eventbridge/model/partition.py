"""The place of a message on a bus: topic, broker, partition."""

from __future__ import annotations

from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of a topic of a bus; `broker` is empty if the bus has no brokers."""

    topic: str
    broker: str
    partition_id: int
