"""The position of a consumer group in one partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.partition import Partition


@dataclass(frozen=True)
class ConsumerOffset:
    """The committed offset of a consumer group (= runner) in one partition: the smallest that is not settled yet.

    It refers to the log of `bus_identity`; empty: registered by a version that did not record it, or the bus has none.
    `message_id` is the last message taken, as the text of a `LastMessage`; empty: none yet, or unknown.
    """

    group: str
    bus: str
    partition: Partition
    offset: int
    message_id: str
    changed_at: datetime
    bus_identity: str = ""
