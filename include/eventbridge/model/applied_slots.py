"""The slots of an Airflow pool: what its rule file last set, and what the pool was last seen to have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class AppliedSlots:
    """Slots that a rule file last set for a pool, when, and those that Airflow had when it was last asked.

    Where the two differ an operator changed the pool, and that counts until the file says something else.
    """

    pool: str
    slots: int
    applied_at: datetime
    seen_slots: int
    seen_at: datetime
