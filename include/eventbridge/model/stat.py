"""Defines stats, which are counts for buses and targets by minute, hour or day, and the metrics computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from eventbridge.model.batch import Batch, Range
from eventbridge.model.partition import ConsumerOffset
from eventbridge.model.rule_state import TargetStatus

#: The scope of a stat: everything of a bus, or one target of a rule. Both count the same deliveries.
Scope = Literal["bus", "target"]
#: The length of a stat's period. Each delivery counts in one period per scope, and folding moves it to a longer one.
Grain = Literal["minute", "hour", "day", "ever"]
GRAIN_LENGTHS: Final[dict[Grain, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
#: The outcomes of a delivery in a batch; a `pending` one counts again in the batch that takes it.
DELIVERY_OUTCOMES: Final = ("delivered", "dead_lettered", "pending")
#: The counts of landed events; all except `gap` make up `read`.
EVENT_OUTCOMES: Final = ("valid", "duplicate", "malformed", "tombstone", "gap")
#: The outcome that counts, by bus, the deliveries that enter the reconciliation without a match: redriven ones, and
#: copies for dead letter queues.
AGAIN: Final = "again"
#: The phases of a batch, each with a count and latencies: from planned to routed, then to the end of the last push,
#: then to committed.
STAGE_OUTCOMES: Final = ("stage_prepare", "stage_push", "stage_settle")
#: The upper bounds of the latency buckets, in milliseconds; the last bucket has no bound.
BOUNDS_MS: Final = (
    *(50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000),
    *(1_800_000, 21_600_000, 86_400_000),
)
BUCKETS: Final = len(BOUNDS_MS) + 1
MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class StatKey:
    """The subject of a stat; `rule` and `target` are "" for a bus."""

    scope: Scope
    bus: str
    rule: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Stat:
    """The counts of one key in a period.

    `matched` is the part of `count` that a rule matched in this batch and not in an earlier one. `size` is in bytes of
    payloads or events, `cpu` in microseconds of routing and pushing. `latency` is the sum of the times in the buckets,
    in microseconds.
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
    """A stat of the period that begins at `at`."""

    grain: Grain
    at: datetime
    stat: Stat


@dataclass(frozen=True, slots=True)
class StatsStep:
    """A stat of one of the equal steps into which a timeline is divided; steps are numbered from 0."""

    step: int
    stat: Stat


@dataclass(frozen=True, slots=True)
class PendingSum:
    """The pending deliveries of a rule's target from committed batches: their state and number."""

    rule: str
    target: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class DroppedTotal:
    """The number of changes in Airflow that were not published, and when a process last reported some."""

    changes: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The values that one transaction read.

    `stats` are all-time sums of buses and, if requested, of targets. `now` is the ledger's time; `host_now` is the
    reading host's time just afterwards.
    """

    now: datetime
    host_now: datetime
    stats: tuple[Stat, ...]
    pending: tuple[PendingSum, ...]
    offsets: tuple[ConsumerOffset, ...]
    open_batches: tuple[Batch, ...]
    ranges: tuple[tuple[str, Range], ...]  # (runner, range) of uncommitted normal batches
    targets: tuple[TargetStatus, ...]
    ingestion_stopped: bool
    dropped: DroppedTotal | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family; `labels` are in the family's order. For a histogram, `value` is the sum of all times.

    `buckets` has pairs of an upper bound in seconds, the last one infinite, and the number of values that do not exceed
    it.
    """

    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one metric. A `counter` only grows. The name contains the unit: seconds or bytes."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]
