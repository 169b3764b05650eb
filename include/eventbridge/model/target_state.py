"""How a target stands, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

TargetState = Literal["ok", "degraded", "half-open", "disabled"]
#: What people and programs are shown: also `paused`, of a target that is ok and asked for a pause by 429, or whose
#: deliveries an operator or a pool without slots holds.
ShownState = Literal["ok", "paused", "degraded", "half-open", "disabled"]


@dataclass(frozen=True)
class TargetStatus:
    """How a target stands, and since when.

    `ok`; `degraded`: its breaker is open, or it was too slow: nothing is sent before `until`, then probes are;
    `half-open`: its last probes were good; `disabled`: it said that it is gone, or failed for too long: its deliveries
    are on hold. `since` is kept while it goes from degraded to half-open and back. `until` of one that is ok is the end
    of its ramp. `good` counts probes. `slow`: its responses are slow, or a request had none in time: it gets its
    deliveries apart from the others, in the slow lane; `good` then counts its quick chunks. `failing_since`: the first
    of its attempts that failed without one that did not since then.
    `paused_until`: it asked for a pause (429), however it stands otherwise; nothing is sent before.
    """

    rule: str
    target: str
    state: TargetState
    reason: str
    since: datetime
    until: datetime | None = None
    good: int = 0
    slow: bool = False
    failing_since: datetime | None = None
    paused_until: datetime | None = None
