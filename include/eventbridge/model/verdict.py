"""The verdict on one delivery of a batch: a row of its settlement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.outcome import StatusName


@dataclass(frozen=True)
class Verdict:
    """A batch's verdict on a delivery; `eventbridge.store.schemas.SETTLEMENT` describes the fields."""

    delivery_id: bytes
    rule: str
    target: str
    chunk_id: int | None
    file: str
    row: int
    verdict: StatusName
    attempts: int
    due_at: datetime | None
    lane: str | None
    held: str | None
    reason: str | None
    detail: str | None
    published_at: datetime
    arrived_at: datetime
    not_before: datetime | None
    settled_at: datetime | None
