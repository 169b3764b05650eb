"""Stats: what was counted, by minute, hour or day, of buses and of rules' targets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

#: Of what a stat is: of everything of a bus, or of one target of a rule. Both count the same deliveries.
Scope = Literal["bus", "target"]
#: How long a stat's time is. Each delivery is in one row of a scope: folding moves it to a longer one.
Grain = Literal["minute", "hour", "day", "ever"]

GRAIN_LENGTHS: Final[dict[Grain, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}

#: What becomes of a delivery in a batch; `pending` may come again, in the batch that takes it up.
DELIVERY_OUTCOMES: Final = ("delivered", "dead_lettered", "pending")
#: What is counted of the events that batches landed; all but `gap` make up `read`.
EVENT_OUTCOMES: Final = ("valid", "duplicate", "malformed", "tombstone", "gap")
#: Deliveries that come into the reconciliation without being matched: redriven ones, copies for dead letter queues; of
#: a bus.
AGAIN: Final = "again"
#: Parts of a batch's time, each a count and its latencies: planned to routed, to the last push's end, to committed.
STAGE_OUTCOMES: Final = ("stage_prepare", "stage_push", "stage_settle")

#: Upper bounds of the latency buckets, in milliseconds; the last bucket has none.
BOUNDS_MS: Final = (
    *(50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000),
    *(1_800_000, 21_600_000, 86_400_000),
)
BUCKETS: Final = len(BOUNDS_MS) + 1


@dataclass(frozen=True, slots=True)
class StatKey:
    """What a stat counts; `rule` and `target` are "" of a bus."""

    scope: Scope
    bus: str
    rule: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Stat:
    """What came to one key in some time.

    `matched`: those of `count` that a rule matched in this batch, not before. `size`: payload bytes, or bytes of
    events. `cpu`: microseconds of routing and pushing. `latency`: the sum of what the buckets count, in microseconds.
    """

    key: StatKey
    count: int = 0
    matched: int = 0
    size: int = 0
    cpu: int = 0
    latency: int = 0
    buckets: tuple[int, ...] = (0,) * BUCKETS


@dataclass(frozen=True, slots=True)
class StatAt:
    """A stat of a time that begins at `at`."""

    grain: Grain
    at: datetime
    stat: Stat


@dataclass(frozen=True, slots=True)
class StatsStep:
    """A stat of one of the equal steps that a span of time is shown in, counted from 0."""

    step: int
    stat: Stat
