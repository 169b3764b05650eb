from __future__ import annotations

from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.streaming import QueuedTarget, bounding_slots, closed_pools, may_begin

POOLS = {
    "eventbridge.medium": PoolSlots(slots=16, free=16),
    "eventbridge.rule.orders": PoolSlots(slots=2, free=0),
    "night": PoolSlots(slots=0, free=0),
}


def test_pools_of_their_own_bound_a_streaming_task_and_shared_ones_do_not() -> None:
    """Only own pools limit streaming tasks, and other work in a pool is not counted."""
    assert bounding_slots(POOLS) == {"eventbridge.rule.orders": 2, "night": 0}
    assert closed_pools(POOLS) == {"night"}
    assert (bounding_slots(None), closed_pools(None)) == ({}, frozenset())


def test_as_many_targets_begin_as_there_are_slots_left() -> None:
    """As many targets start as slots are left, the longest wait first; an unknown pool sets no limit."""
    waiting = {name: QueuedTarget("crm", 500) for name in "abc"} | {"free": QueuedTarget("eventbridge.low", 250)}

    assert may_begin(waiting, {}, {"crm": 2}) == (["a", "b", "free"], {"crm"})
    assert may_begin(waiting, {"crm": 2}, {"crm": 2}) == (["free"], {"crm"})
    assert may_begin(waiting, {"crm": 1}, {"crm": 4}) == (["a", "b", "c", "free"], frozenset())


def test_a_heavier_task_has_its_turn_first() -> None:
    """A task with a higher weight starts first, as in Airflow; among equals, the one that has waited longest."""
    waiting = {"low": QueuedTarget("crm", 250), "high": QueuedTarget("crm", 750), "later": QueuedTarget("crm", 750)}

    assert may_begin(waiting, {}, {"crm": 1}) == (["high"], {"crm"})


def test_fewer_slots_than_running_tasks_let_no_task_begin() -> None:
    """After slots were removed, no task starts until fewer tasks than slots are running."""
    assert may_begin({"a": QueuedTarget("crm", 500)}, {"crm": 5}, {"crm": 2}) == ([], {"crm"})
