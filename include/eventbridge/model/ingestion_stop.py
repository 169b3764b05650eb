"""A stop of ingestion: no new events are taken, because there is no room for their data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

#: Where room is short: the disk of the store, or the store's quota.
StopCause = Literal["disk", "quota"]


@dataclass(frozen=True)
class IngestionStop:
    """Why no runner plans a batch, and since when."""

    reason: str
    since: datetime
    cause: StopCause
