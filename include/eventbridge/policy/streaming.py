"""Decides how a streaming task works: how long a batch stays open, how often it polls the bus and records
responses, and which targets may send.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules.model import PRIORITY_POOLS

#: Traffic is low if it is below this many events or responses per second.
LITTLE: Final = 10.0
#: With low traffic, a batch stays open this many times as long as usual, but at most this many seconds (unless the
#: usual time is longer).
_BATCHES, _MAX_BATCH_SECONDS = 6.0, 60.0
#: The same factor and maximum for the time until a segment is written. This maximum applies even if the usual time is
#: longer, as it is for a bucket, because a crash repeats the deliveries of a segment.
_SEGMENTS, _MAX_SEGMENT_SECONDS = 5.0, 5.0
#: The number of seconds to wait between two polls of the bus. A poll takes about as long for ten events as for one.
_POLL_SECONDS: Final = 0.003
Key = TypeVar("Key", bound=Hashable)


#: A segment is written after this share of its time, because noticing that it is due and writing it take the rest.
_WRITE_FROM: Final = 0.8


#: After a poll that returned at least _SOME events, the next one waits longer so that it returns more. After a poll
#: with at least _MANY, it follows immediately, because more are waiting.
_SOME, _SOME_POLL_SECONDS, _MANY = 16, 0.008, 100


#: After _QUIET_SECONDS without events, the bus counts as idle, and polls are _QUIET_POLL_SECONDS apart.
_QUIET_SECONDS, _QUIET_POLL_SECONDS = 5.0, 0.008


#: If the bus notifies of new events, a poll without a notification follows this many seconds after the last poll.
UNANNOUNCED_SECONDS: Final = 0.05


def batch_is_over(age: float, events: int, usual: float, *, waits: bool = False) -> bool:
    """Return whether to close a batch of `events` events, `age` seconds after the first.

    `waits` is True if some of the events are sent only when the batch closes.
    """
    if age < usual:
        return False
    return waits or events >= LITTLE * age or age >= max(usual, min(_BATCHES * usual, _MAX_BATCH_SECONDS))


def segment_is_due(age: float, responses: int, usual: float, max_responses: int) -> bool:
    """Return whether to record the responses now, `age` seconds after the last record was begun."""
    if not responses:
        return False
    if responses >= max_responses:
        return True
    seconds = usual if responses >= LITTLE * age else _SEGMENTS * usual
    return age >= _WRITE_FROM * min(seconds, _MAX_SEGMENT_SECONDS)


def poll_seconds(event_count: int, since: float) -> float:
    """Return how many seconds to wait before the next poll of the bus.

    `event_count` is the number of events that the last poll returned, and `since` is the number of seconds since a poll
    last returned any.
    """
    if event_count >= _MANY:
        return 0.0
    if event_count >= _SOME:
        return _SOME_POLL_SECONDS
    return _POLL_SECONDS if since < _QUIET_SECONDS else _QUIET_POLL_SECONDS


class QueuedTarget(NamedTuple):
    """A target that is waiting for a slot, with the pool and the weight of its rule."""

    pool: str
    weight: int


def closed_pools(pools: Mapping[str, PoolSlots] | None) -> frozenset[str]:
    """Return the pools without slots, whose rules' deliveries are on hold; `pools` is None if no pools are known."""
    return frozenset(name for name, pool in (pools or {}).items() if pool.slots == 0)


def bounding_slots(pools: Mapping[str, PoolSlots] | None) -> dict[str, int]:
    """Return the slots of the pools that bound a streaming task: pools that rules name, and rules' own pools.

    The shared pools do not bound it, because they distribute Airflow's workers, and a streaming task uses only one.
    """
    return {name: pool.slots for name, pool in (pools or {}).items() if name not in PRIORITY_POOLS}


def may_begin(
    waiting: Mapping[Key, QueuedTarget], at_work: Mapping[str, int], slots: Mapping[str, int]
) -> tuple[Sequence[Key], frozenset[str]]:
    """Return which of the waiting targets may begin, and the pools for whose slots the others are waiting.

    The highest weight comes first. Among equal weights, the order is that of `waiting`, the longest wait first.
    `at_work` is the number of active targets by pool. A pool that is not in `slots` is unbounded.
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


def short_of_slots(streaming_runners: int, slots: int) -> str | None:
    """Return a warning if the runners' streaming tasks would leave no slot, else None.

    `slots` is how many tasks may run at a time, 0 for any number.
    """
    if not 0 < slots <= streaming_runners:
        return None
    runners = "runner is in" if streaming_runners == 1 else "runners are in"
    return (
        f"{streaming_runners} {runners} streaming mode, and core.parallelism of Airflow is {slots}: "
        "the streaming tasks leave no slot for a standby or any other task, such as that of a retry batch. "
        f"Set it to {2 * streaming_runners} or more, or leave runners in batch mode"
    )
