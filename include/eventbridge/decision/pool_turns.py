"""Which targets of a streaming task are sent to at a time: of those of an Airflow pool as many as it has slots.
Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from eventbridge.decision.chunking import PoolSlots
from eventbridge.rule.model import PRIORITY_POOLS

Key = TypeVar("Key", bound=Hashable)


class Waits(NamedTuple):
    """A target that waits for its turn: the pool of its rule, and the rule's weight."""

    pool: str
    weight: int


def closed_pools(pools: Mapping[str, PoolSlots] | None) -> frozenset[str]:
    """Return the pools whose rules' deliveries are on hold; `pools` None: nobody knows any."""
    return frozenset(name for name, pool in (pools or {}).items() if pool.slots == 0)


def bounding_slots(pools: Mapping[str, PoolSlots] | None) -> dict[str, int]:
    """Return the slots of the pools that bound a streaming task: those that rules name, or have of their own.

    The shared ones share out Airflow's workers, of which a streaming task has one.
    """
    return {name: pool.slots for name, pool in (pools or {}).items() if name not in PRIORITY_POOLS}


def may_begin(
    waiting: Mapping[Key, Waits], at_work: Mapping[str, int], slots: Mapping[str, int]
) -> tuple[Sequence[Key], frozenset[str]]:
    """Return which of the targets that wait may begin, and the pools that others wait for.

    The heaviest come first, then who waits longest: that is the order of `waiting`. `at_work`: how many targets of a
    pool are sent to. A pool that is not in `slots` bounds nothing.
    """
    free = {pool: count - at_work.get(pool, 0) for pool, count in slots.items()}
    begun: list[Key] = []
    short: set[str] = set()
    for key, (pool, _) in sorted(waiting.items(), key=lambda each: -each[1].weight):
        if free.get(pool, 1) < 1:
            short.add(pool)
            continue
        begun.append(key)
        if pool in free:
            free[pool] -= 1
    return begun, frozenset(short)
