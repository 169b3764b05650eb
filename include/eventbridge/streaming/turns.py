"""Turns of targets in an open batch in streaming mode, if a pool has fewer slots than targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from eventbridge.model.rule_state import OperatorOverrides
from eventbridge.pipeline.route.stage import overridden_lanes
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.pool_turns import Waits, bounding_slots, closed_pools, may_begin
from eventbridge.rules import RuleSet

Key = tuple[str, str]


class PoolTurns:
    """The turns of a batch's targets, with pools and overrides from its start; False if no pool bounds it.

    `held`: the rules whose pool has no slots.
    """

    def __init__(self, rules: RuleSet, pools: Mapping[str, PoolSlots] | None, overrides: OperatorOverrides) -> None:
        of_file = {name: Waits(rule.pool_name, rule.weight) for name, rule in rules.rules.items()}
        self._lanes = of_file | {name: Waits(*lane) for name, lane in overridden_lanes(rules, overrides).items()}
        closed = closed_pools(pools)
        self.held = {name for name, lane in self._lanes.items() if lane.pool in closed}
        named = {lane.pool for lane in self._lanes.values()}
        self._slots = {name: slots for name, slots in bounding_slots(pools).items() if name in named}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def next(self, waiting: Iterable[Key], is_at_work: Collection[Key]) -> tuple[list[Key], list[Key]]:
        """Return which waiting targets may begin, and for which running targets others wait."""
        wait = {key: self._lanes[key[0]] for key in waiting}
        counts = Counter(self._pool(key) for key in is_at_work)
        begun, short = may_begin(wait, counts, self._slots)
        return list(begun), [key for key in is_at_work if self._pool(key) in short]

    def _pool(self, key: Key) -> str:
        lane = self._lanes.get(key[0])  # the former batch may run a rule that no longer exists
        return lane.pool if lane is not None else ""
