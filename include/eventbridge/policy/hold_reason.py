"""Decides whether and why pending deliveries or deferred matches are on hold, so that no batch takes them."""

from __future__ import annotations

from collections.abc import Mapping

from eventbridge.model.pending import POOL_CLOSED, RULE_DISABLED, RULE_ON_HOLD, RULE_REMOVED, TARGET_DISABLED
from eventbridge.model.rule_state import OperatorOverrides, RuleOnHold, TargetStatus
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import RuleSet


def delivery_hold_reason(
    rules: RuleSet,
    statuses: Mapping[tuple[str, str], TargetStatus],
    pools: Mapping[str, PoolSlots],
    overrides: OperatorOverrides,
    rule_name: str,
    target: str,
) -> str:
    """Return why deliveries of a target must not be sent now, or "" if they may be sent when they are due."""
    rule = rules.rules.get(rule_name)
    if rule is None or target not in rule.destinations:
        return RULE_REMOVED
    if not rule.enabled:
        return RULE_DISABLED
    status = statuses.get((rule_name, target))
    if status is not None and status.state == "disabled":
        return TARGET_DISABLED
    if paused := overrides.hold_reason(rule_name, target):
        return paused
    return _pool_hold_reason(pools, rule.pool_name)


def deferred_match_hold_reason(
    rules: RuleSet,
    rules_on_hold: Mapping[str, RuleOnHold],
    pools: Mapping[str, PoolSlots],
    overrides: OperatorOverrides,
    rule_name: str,
) -> str:
    """Return why deferred matches of a rule must not be routed now, or "" if they may be routed when they are due."""
    rule = rules.rules.get(rule_name)
    if rule is None:
        return RULE_REMOVED
    if not rule.enabled:
        return RULE_DISABLED
    rule_on_hold = rules_on_hold.get(rule_name)
    if rule_on_hold is not None and rule_on_hold.version == rule.version:
        return RULE_ON_HOLD
    if paused := overrides.hold_reason(rule_name, ""):
        return paused
    return _pool_hold_reason(pools, rule.pool_name)


def _pool_hold_reason(pools: Mapping[str, PoolSlots], name: str) -> str:
    pool = pools.get(name)
    return POOL_CLOSED if pool is not None and pool.slots == 0 else ""
