"""The pools and the weights of the slow lane and of the replay lane."""

from __future__ import annotations

#: Pool and priority weight of every retry chunk; the weight is below those of new deliveries (250 to 750).
SLOW_LANE_POOL = "eventbridge.retry"
SLOW_LANE_WEIGHT = -200

#: Pool and priority weight of every chunk of a replay: below all else.
REPLAY_LANE_POOL = "eventbridge.replay"
REPLAY_LANE_WEIGHT = -400
