"""The slots of an Airflow pool: those last set by its rule file, and those last seen in Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class AppliedSlots:
    """Slots that a rule file last set for a pool, when, and those that Airflow had when it was last queried.

    If the two differ, an operator changed the pool; the operator's value wins until the file has another value.
    """

    pool: str
    slots: int
    applied_at: datetime
    seen_slots: int
    seen_at: datetime
