"""A shift: a process delivers a runner's events as they come, for as long as it has the lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Shift:
    """Who delivers a runner's events as they come, and until when nobody else may."""

    runner: str
    holder: str
    until: datetime
