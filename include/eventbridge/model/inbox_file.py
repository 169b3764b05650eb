"""The ledger's record of a file of the inbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class InboxFile:
    """One file of the store with messages `start` (included) to `end` (excluded) of a topic, which a queue handed out.

    Not `acknowledged`: the queue may hand them out again; `again` counts messages that it handed out again.
    """

    bus: str
    topic: str
    start: int
    end: int
    path: str
    again: int
    stored_at: datetime
    acknowledged: bool
