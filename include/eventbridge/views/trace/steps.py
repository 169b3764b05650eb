"""Makes the steps of an event trace from batches, dead letters and the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.model.pending import DeferredMatch, PendingDeliveries
from eventbridge.model.redelivery import Redriven, Replay, Replayed
from eventbridge.model.why import Step

_Row = Mapping[str, Any]

#: The detail of a delivery without an attempt in its batch.
_NO_RESPONSE = "no attempt is on record: it was not sent, or its process ended before it recorded the attempt"


def attempt_step(batch: Batch, row: _Row) -> Step:
    """Return the step of a row of a segment."""
    return Step(
        at=row["started_at"],
        what="attempt",
        batch_id=batch.batch_id,
        rule=row["rule"],
        target=row["target"],
        delivery_id=delivery_id_text(row["delivery_id"]),
        attempt=row["attempt"] if row["sent"] else None,
        outcome=row["outcome"],
        code=row["code"],
        reason=row["reason"],
        detail=_error(row),
        duration_ms=row["duration_ms"] if row["sent"] else None,
        response_head=_head(row),
    )


def verdict_step(batch: Batch, row: _Row) -> Step:
    """Return the step of a row of a settlement."""
    return Step(
        at=row["settled_at"] or batch.committed_at,
        what="settled",
        batch_id=batch.batch_id,
        rule=row["rule"],
        target=row["target"],
        delivery_id=delivery_id_text(row["delivery_id"]),
        outcome=row["verdict"],
        reason=row["reason"],
        detail=row["detail"] or (_NO_RESPONSE if row["verdict"] == "unknown" else None),
    )


def dead_letter_step(batch: Batch, letter: _Row) -> Step:
    """Return the step of a dead letter."""
    return Step(
        at=letter["last_attempt_at"] or batch.committed_at or letter["arrived_at"],
        what="dead-lettered",
        batch_id=batch.batch_id,
        rule=letter["rule"],
        target=letter["target"],
        delivery_id=_name(letter),
        reason=letter["reason"],
        detail=letter["detail"],
    )


def dead_letter_attempt_step(batch: Batch, letter: _Row, attempt: _Row) -> Step:
    """Return the step of an attempt in a dead letter."""
    return Step(
        at=attempt["started_at"],
        what="attempt",
        batch_id=batch.batch_id,
        rule=letter["rule"],
        target=letter["target"],
        delivery_id=_name(letter),
        attempt=attempt["number"],
        outcome=attempt["outcome"],
        code=attempt["code"],
        detail=_error(attempt),
        duration_ms=attempt["duration_ms"],
        response_head=_head(attempt),
    )


def redrive_step(taken: Redriven, at: datetime | None, letter: _Row) -> Step:
    """Return the step of a redrive that took a dead letter."""
    return Step(
        at=at,
        what="redriven",
        batch_id=taken.batch_id,
        rule=letter["rule"],
        target=letter["target"],
        delivery_id=_name(letter),
        detail=f"redrive {taken.redrive_id}",
    )


def pending_step(row: PendingDeliveries) -> Step:
    """Return the step of a pending row."""
    taken = row.closed_by or row.taken_by
    if taken:
        detail = f"taken up by batch {taken}"
    else:
        detail = f"on hold: {row.held}" if row.state == "on_hold" else f"due at {row.due_at:%Y-%m-%d %H:%M:%S}"
    return Step(
        at=row.pending_at,
        what="pending",
        batch_id=row.batch_id,
        rule=row.rule,
        target=row.target,
        attempt=row.attempts or None,
        outcome=row.state,
        reason=row.reason,
        detail=detail,
    )


def deferred_match_step(row: DeferredMatch) -> Step:
    """Return the step of a deferred match."""
    taken = row.closed_by or row.taken_by
    return Step(
        at=row.made_at,
        what="deferred",
        batch_id=row.batch_id,
        rule=row.rule,
        outcome=row.state,
        reason=row.reason,
        detail=f"routed by batch {taken}" if taken else f"is to be routed from {row.due_at:%Y-%m-%d %H:%M:%S} on",
    )


def replay_step(replay: Replay, taken: Replayed, at: datetime | None) -> Step:
    """Return the step of a replay that took an event."""
    part = replay.parts[taken.part]
    return Step(
        at=at,
        what="replayed",
        batch_id=taken.batch_id or "",
        rule=part.rule or None,
        target=part.target or None,
        detail=f"replay {replay.replay_id}",
    )


def _name(letter: _Row) -> str | None:
    return None if letter["delivery_id"] is None else delivery_id_text(letter["delivery_id"])


def _error(row: _Row) -> str | None:
    return ": ".join(filter(None, (row["error_class"], row["error"]))) or None


def _head(row: _Row) -> str | None:
    head: bytes | None = row["response_head"]
    return head.decode("utf-8", "replace") if head else None
