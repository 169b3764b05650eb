"""Defines the deliveries and deferred matches that are waiting for another batch in the ledger, and the reasons for
holds."""

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

#: The chunk id of deliveries without a chunk. It is not null because it is part of a unique key, and SQL treats nulls
#: as different.
NO_CHUNK = -1


@dataclass(frozen=True)
class PendingDeliveries:
    """Deliveries of one batch, chunk and target that are waiting for another batch.

    A row is identified by batch_id, settlement, chunk_id, rule, target, reason, attempts and lane, and by the due_at
    and hold_reason with which it was added (the columns due_bucket and hold_bucket). Adding the same identity again
    with the same files has no effect. A `scheduled` row may be taken at or after `due_at`, a row `on_hold` waits until
    it is released, and a `closed` row was taken by a committed batch.
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
    order_shard: int | None = None  # None unless the target is ordered
    order_spans: tuple[Span, ...] = ()  # where its deliveries are in their partitions
    state: PendingState = "scheduled"
    pending_at: datetime | None = None
    on_hold_since: datetime | None = None
    taken_by: str | None = None
    closed_by: str | None = None
    settlement: int = 0  # the settlement that left it pending: 0, or the number of a supplement
    published_at: datetime | None = None  # when its youngest event was published, if its target has `deliver_within`
    late_reported_at: datetime | None = None  # when it was reported as running late
    pending_id: int | None = None  # assigned by the ledger


@dataclass(frozen=True)
class RunningLate:
    """Pending deliveries of a target for which most of `deliver_within` has passed, and what they are waiting for."""

    count: int
    published_at: datetime  # when the oldest event was published
    waits_for: tuple[str, ...]


class DueTarget(NamedTuple):
    """A target with due deliveries."""

    rule: str
    target: str
    first_due_at: datetime  # when its first row fell due


@dataclass(frozen=True)
class PendingCount:
    """The number of a target's rows and deliveries that are pending in one state for one reason, and when the first is
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
    """Deliveries of one target that are pending in one state with one `hold_reason`; no batch has taken them."""

    rule: str
    target: str
    state: PendingState
    hold_reason: str
    newest_on_hold_since: datetime | None  # when the last row was put on hold; None if they are not on hold


@dataclass(frozen=True)
class DeferredMatch:
    """The events of a batch for which a rule has not been routed yet: rows of buffer files that its pattern matches.

    It is identified by batch_id, rule and reason. A `scheduled` match may be taken at or after `due_at`, a match
    `on_hold` has waited to be released since `due_at`, and a `closed` match was taken by a committed batch. `made_at`
    is when its oldest event was first deferred. `order_spans` holds the positions of its events if its rule had an
    ordered target when it was made; else it is empty.
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
    tries: int = 0  # how many batches took it, or a match of which it was a part, without success
    on_hold_seconds: float = 0.0  # not part of its age
    taken_by: str | None = None
    closed_by: str | None = None
    order_spans: tuple[Span, ...] = ()
    deferred_match_id: int | None = None  # assigned by the ledger
