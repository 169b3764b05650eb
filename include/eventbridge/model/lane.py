"""The pool and the weight of the slow lane."""

from __future__ import annotations

#: Pool and priority weight of every retry chunk; the weight is below those of new deliveries (250 to 750).
SLOW_LANE_POOL = "lane.slow"
SLOW_LANE_WEIGHT = -200
