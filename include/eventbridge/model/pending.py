"""Deliveries that wait in the ledger for another batch, row by row and in sum."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from eventbridge.model.place import Span

PendingState = Literal["scheduled", "on_hold", "closed"]

#: The chunk of what was in none: part of a pending row's name, which a database compares, so never null.
NO_CHUNK = -1


@dataclass(frozen=True)
class PendingDeliveries:
    """Deliveries of one batch, chunk and target that wait for another batch.

    Named by (batch_id, settlement, chunk_id, rule, target, reason, attempts, lane, and the due_at and held it was
    added with): to add the same name again with the same files is to add nothing.
    State `scheduled`: may be taken once `due_at` has come; `on_hold`: waits for a person; `closed`: a committed batch
    took it.
    """

    batch_id: str
    chunk_id: int
    runner: str
    rule: str
    target: str
    reason: str
    attempts: int
    due_at: datetime
    files: tuple[tuple[str, str], ...]  # (delivery file, encoded rows)
    count: int
    size: int
    lane: str = "slow"
    held: str = ""
    on_hold_seconds: float = 0.0
    lineage: tuple[tuple[str, int], ...] = ()
    expires_at: datetime | None = None
    order_shard: int | None = None  # of an ordered target
    order_spans: tuple[Span, ...] = ()  # where in their partitions its deliveries lie
    state: PendingState = "scheduled"
    pending_at: datetime | None = None
    on_hold_since: datetime | None = None
    taken_by: str | None = None
    closed_by: str | None = None
    settlement: int = 0  # the settlement that said so: 0, or the number of a supplement
    published_at: datetime | None = None  # of the youngest, where its target has `deliver_within`
    late_reported_at: datetime | None = None  # that its time runs out
    pending_id: int | None = None  # given by the ledger


@dataclass(frozen=True)
class RunningLate:
    """Deliveries of one target that wait though most of their time is over: how many, since when and for what."""

    count: int
    published_at: datetime  # of the oldest row
    waits_for: tuple[str, ...]


class DueTarget(NamedTuple):
    """A target with deliveries that are due."""

    rule: str
    target: str
    first_due_at: datetime  # of what has been due the longest


@dataclass(frozen=True)
class PendingCount:
    """How many rows and deliveries of a target wait in one state for one reason, and when the first is due."""

    rule: str
    target: str
    state: PendingState
    reason: str
    rows: int
    count: int
    next_due_at: datetime


@dataclass(frozen=True)
class WaitingTarget:
    """What of one target waits in one state for one reason (`held`), none of it taken by a batch."""

    rule: str
    target: str
    state: PendingState
    held: str
    newest_on_hold_since: datetime | None  # when the last of it was on hold; None = it is not on hold
