"""A rule's share of a batch that is routed later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eventbridge.model.pending import PendingState
from eventbridge.model.place import Span


@dataclass(frozen=True)
class DeferredMatch:
    """A rule's share of a batch that is not routed yet: rows of buffer files that its pattern matches.

    Named by (batch_id, rule, reason). State `scheduled`: may be taken from `due_at` on; `on_hold`: waits for a person,
    since `due_at`; `closed`: a committed batch took it. `made_at` is when its oldest event was first deferred.
    `order_spans` holds the positions of its events if its rule had an ordered target when it was made; else it is
    empty.
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
    on_hold_seconds: float = 0.0  # they do not count towards its age
    taken_by: str | None = None
    closed_by: str | None = None
    order_spans: tuple[Span, ...] = ()
    deferred_match_id: int | None = None  # assigned by the ledger
