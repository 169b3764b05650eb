"""Deliveries and deferred matches that wait in the ledger for another batch, and why some are on hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from eventbridge.model.partition import Span

EXPECTATION_FAILED = "expectation failed"
POOL_CLOSED = "pool closed"
RULE_DISABLED = "rule disabled"
RULE_ON_HOLD = "rule on hold"
RULE_PAUSED = "rule paused"
RULE_REMOVED = "rule removed"
TARGET_DISABLED = "target disabled"
TARGET_PAUSED = "target paused"


PendingState = Literal["scheduled", "on_hold", "closed"]

#: The chunk id of deliveries without a chunk: never null, because it identifies a row and databases compare it.
NO_CHUNK = -1


@dataclass(frozen=True)
class PendingDeliveries:
    """Deliveries of one batch, chunk and target that wait for another batch.

    The row is identified by (batch_id, settlement, chunk_id, rule, target, reason, attempts, lane, and the due_at and
    hold_reason with which it was added, the columns due_bucket and hold_bucket): adding the same identity again with
    the same files has no effect. A `scheduled` row may be taken at or after `due_at`, one `on_hold` waits until it is
    released, and a `closed` one was taken by a committed batch.
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
    hold_reason: str = ""
    on_hold_seconds: float = 0.0
    lineage: tuple[tuple[str, int], ...] = ()
    expires_at: datetime | None = None
    order_shard: int | None = None  # of an ordered target
    order_spans: tuple[Span, ...] = ()  # positions of its deliveries in their partitions
    state: PendingState = "scheduled"
    pending_at: datetime | None = None
    on_hold_since: datetime | None = None
    taken_by: str | None = None
    closed_by: str | None = None
    settlement: int = 0  # the settlement that left it pending: 0, or the number of a supplement
    published_at: datetime | None = None  # of the youngest event, if its target has `deliver_within`
    late_reported_at: datetime | None = None  # when it was reported as running late
    pending_id: int | None = None  # assigned by the ledger


@dataclass(frozen=True)
class RunningLate:
    """Deliveries of a target that are still pending although most of their time has passed: count, start and reason."""

    count: int
    published_at: datetime  # of the oldest row
    waits_for: tuple[str, ...]


class DueTarget(NamedTuple):
    """A target with deliveries that are due."""

    rule: str
    target: str
    first_due_at: datetime  # of the row that has been due the longest


@dataclass(frozen=True)
class PendingCount:
    """The number of rows and deliveries of a target that wait in one state for one reason, and when the first is
    due."""

    rule: str
    target: str
    state: PendingState
    reason: str
    rows: int
    count: int
    next_due_at: datetime


@dataclass(frozen=True)
class WaitingTarget:
    """Deliveries of one target that wait in one state for one reason (`hold_reason`); no batch has taken them."""

    rule: str
    target: str
    state: PendingState
    hold_reason: str
    newest_on_hold_since: datetime | None  # when the last row was put on hold; None if they are not on hold


@dataclass(frozen=True)
class DeferredMatch:
    """A rule's share of a batch that is not routed yet: rows of buffer files that its pattern matches.

    It is identified by (batch_id, rule, reason). A `scheduled` one may be taken at or after `due_at`, one `on_hold` has
    waited to be released since `due_at`, and a `closed` one was taken by a committed batch. `made_at` is when its
    oldest event was first deferred. `order_spans` holds the positions of its events if its rule had an ordered target
    when it was made; else it is empty.
    """

    batch_id: str
    runner: str
    rule: str
    reason: str
    files: tuple[tuple[str, str], ...]  # (buffer file, encoded rows)
    count: int
    due_at: datetime
    made_at: datetime
    expires_at: datetime | None = None
    state: PendingState = "scheduled"
    tries: int = 0  # batches that took it, or the match it was part of, without success
    on_hold_seconds: float = 0.0  # this time does not count towards its age
    taken_by: str | None = None
    closed_by: str | None = None
    order_spans: tuple[Span, ...] = ()
    deferred_match_id: int | None = None  # assigned by the ledger
