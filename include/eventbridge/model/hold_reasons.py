"""Why deliveries or deferred matches are on hold: a person, a rule file or a pool ends each reason."""

from __future__ import annotations

EXPECTATION_FAILED = "expectation failed"
POOL_CLOSED = "pool closed"
RULE_DISABLED = "rule disabled"
RULE_ON_HOLD = "rule on hold"
RULE_PAUSED = "rule paused"
RULE_REMOVED = "rule removed"
TARGET_DISABLED = "target disabled"
TARGET_PAUSED = "target paused"
