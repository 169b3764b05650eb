"""That no new events are taken, as there is no room for what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

#: What there is too little room in: the disk that the store lies on, or the store's own quota.
StopCause = Literal["disk", "quota"]


@dataclass(frozen=True)
class IngestionStop:
    """Why no runner plans a batch, and since when."""

    reason: str
    since: datetime
    cause: StopCause
