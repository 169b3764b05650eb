"""The values of the ledger at one moment that metrics need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.batch import Batch, Range
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.stat import Stat
from eventbridge.model.target_state import TargetStatus


@dataclass(frozen=True, slots=True)
class PendingSum:
    """Waiting deliveries of a rule's target from committed batches: their state and number."""

    rule: str
    target: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The values that one transaction read. `stats`: all-time sums of buses and, if requested, of targets.

    `now` is the ledger's time, `host_now` the time of the reading host just after.
    """

    now: datetime
    host_now: datetime
    stats: tuple[Stat, ...]
    pending: tuple[PendingSum, ...]
    offsets: tuple[ConsumerOffset, ...]
    open_batches: tuple[Batch, ...]
    ranges: tuple[tuple[str, Range], ...]  # of uncommitted normal batches, with their runners
    targets: tuple[TargetStatus, ...]
    ingestion_stopped: bool
