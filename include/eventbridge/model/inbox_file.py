"""What the ledger knows of a file of the inbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class InboxFile:
    """Messages `start` (included) to `end` (excluded) of a topic, which a queue handed out, in one file of the store.

    Not `acknowledged`: the queue may hand them out again; `again` counts messages that it did.
    """

    bus: str
    topic: str
    start: int
    end: int
    path: str
    again: int
    stored_at: datetime
    acknowledged: bool
