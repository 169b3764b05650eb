"""A rule that waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class RuleOnHold:
    """A rule that is not routed, or is on hold at a delivery: this version of it, why, and since when."""

    rule: str
    version: str
    reason: str
    since: datetime
