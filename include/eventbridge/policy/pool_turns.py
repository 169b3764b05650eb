"""Decides which targets of a streaming task get deliveries at a time: as many of a pool as it has slots. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules.model import PRIORITY_POOLS

Key = TypeVar("Key", bound=Hashable)


class Waits(NamedTuple):
    """A target that waits for its turn, with the pool and the weight of its rule."""

    pool: str
    weight: int


def closed_pools(pools: Mapping[str, PoolSlots] | None) -> frozenset[str]:
    """Return the pools whose rules' deliveries are on hold; `pools` None: no pools are known."""
    return frozenset(name for name, pool in (pools or {}).items() if pool.slots == 0)


def bounding_slots(pools: Mapping[str, PoolSlots] | None) -> dict[str, int]:
    """Return the slots of the pools that bound a streaming task: those that rules name, or their own pools.

    Shared pools distribute Airflow's workers, of which a streaming task uses one.
    """
    return {name: pool.slots for name, pool in (pools or {}).items() if name not in PRIORITY_POOLS}


def may_begin(
    waiting: Mapping[Key, Waits], at_work: Mapping[str, int], slots: Mapping[str, int]
) -> tuple[Sequence[Key], frozenset[str]]:
    """Return which of the waiting targets may begin, and the pools for which others wait.

    The highest weight comes first, then the longest wait, which is the order of `waiting`. `at_work`: how many targets
    of each pool are active. A pool that is not in `slots` is unbounded.
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
