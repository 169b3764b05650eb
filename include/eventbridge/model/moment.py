"""The ledger at one moment, as far as metrics tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.batch import Batch, Range
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.stat import Stat
from eventbridge.model.target_state import TargetStatus


@dataclass(frozen=True, slots=True)
class PendingSum:
    """Deliveries of a rule's target that wait, those of committed batches: what state they are in, and how many."""

    rule: str
    target: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What one transaction read. `stats`: sums since ever, of buses and, if asked for, of targets.

    `now` is the ledger's time, `host_now` that of the host which read it, just after.
    """

    now: datetime
    host_now: datetime
    stats: tuple[Stat, ...]
    pending: tuple[PendingSum, ...]
    offsets: tuple[ConsumerOffset, ...]
    open_batches: tuple[Batch, ...]
    ranges: tuple[tuple[str, Range], ...]  # of normal batches that are not committed, with their runners
    targets: tuple[TargetStatus, ...]
    ingestion_stopped: bool
