"""Where messages lie: a queue of a topic on a broker."""

from __future__ import annotations

from typing import NamedTuple


class TopicQueue(NamedTuple):
    """One queue of a topic: on which broker, and its number there."""

    topic: str
    broker: str
    number: int
