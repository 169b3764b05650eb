"""That no new events are taken, as the store is short of space."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class IntakeStop:
    """Why no runner plans a batch, and since when."""

    reason: str
    since: datetime
