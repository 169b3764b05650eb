"""The status of a target, and since when it has its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

TargetState = Literal["ok", "degraded", "half-open", "disabled"]
#: The states that are shown: also `paused`, for a target that is ok and asked for a pause by 429, or whose deliveries
#: are on hold by an operator or a pool without slots.
ShownState = Literal["ok", "paused", "degraded", "half-open", "disabled"]


@dataclass(frozen=True)
class TargetStatus:
    """The status of a target, and since when it has its state.

    `ok`; `degraded`: its breaker is open, or it was too slow: nothing is sent before `until`, then probes are sent;
    `half-open`: its last probes were good; `disabled`: it responded that it is gone, or failed for too long: its
    deliveries are on hold. `since` stays the same between degraded and half-open. `until` of an ok target is the end of
    its ramp. `good` counts probes. `slow`: its responses are slow, or a request had none in time: its deliveries are
    sent apart from the others, in the slow lane; `good` then counts its quick chunks. `failing_since`: the time of its
    first failed attempt since the last successful one.
    `paused_until`: it asked for a pause (429), in any state; nothing is sent before then.
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
