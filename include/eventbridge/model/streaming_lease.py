"""The lease of a streaming task: a process delivers a runner's events as they arrive while it has the lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class StreamingLease:
    """The process that delivers a runner's events as they arrive, and until when no other process may.

    `batch_id`: the batch that was opened last. `wants_next`: the streaming task ends soon and requests a standby.
    `next_holder`: the standby, registered until `next_until` unless it registers again.
    """

    runner: str
    holder: str
    until: datetime
    batch_id: str | None = None
    wants_next: bool = False
    next_holder: str | None = None
    next_until: datetime | None = None

    def standby(self, now: datetime) -> str | None:
        """Return the standby; None if there is none."""
        return self.next_holder if self.next_until is not None and self.next_until > now else None
