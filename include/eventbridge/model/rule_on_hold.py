"""A rule that is on hold until a person acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class RuleOnHold:
    """A rule that is not routed, or is on hold at a delivery: its version, the reason, and since when."""

    rule: str
    version: str
    reason: str
    since: datetime
