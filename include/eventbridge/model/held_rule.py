"""A rule that waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class HeldRule:
    """A rule that is not routed, or is held at a delivery: this version of it, why, and since when."""

    rule: str
    version: str
    reason: str
    since: datetime
