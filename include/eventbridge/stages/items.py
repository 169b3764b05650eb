"""What a push knows of one delivery of its chunk, and of all those of one target; the rows that it writes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventbridge.breaker import Ended
from eventbridge.delivery import Answer, DeadLettered, Outcome, RetryAt, age_begins
from eventbridge.identity import delivery_id_text
from eventbridge.targets.protocol import Request


@dataclass(frozen=True)
class Item:
    """One delivery of the chunk and how often it was tried before; its age begins at `arrived_at`."""

    delivery_id: bytes
    rule: str
    target: str
    request: Request
    arrived_at: datetime
    attempts: int
    held_seconds: float
    due_at: datetime | None = None  # None: at once
    not_before: datetime | None = None


#: Columns of a delivery file that `item_of` needs, and `failure`.
ITEM_COLUMNS = [
    "delivery_id", "arrived_at", "payload", "content_type", "headers", "order_key", "failure", "not_before",
]  # fmt: skip


def item_of(row: dict[str, Any], rule: str, target: str, attempts: int, held_seconds: float) -> Item:
    """Return the delivery of a row of a delivery file, after so many attempts and seconds held."""
    return Item(
        delivery_id=row["delivery_id"],
        rule=rule,
        target=target,
        request=request_of(row),
        arrived_at=age_begins(row["arrived_at"], row["not_before"]),
        attempts=attempts,
        held_seconds=held_seconds,
        not_before=row["not_before"],
    )


@dataclass
class TargetReport:
    """What a target's run came to; `spent` = it ended because its budget did, with work left."""

    rule: str
    target: str
    total: int
    delivered: int = 0
    dead_lettered: int = 0
    retried: int = 0
    sent: int = 0  # of them, by this push
    held_up: bool = False  # it was not the target alone that kept the rest from being sent
    spent: bool = False
    gone: bool = False
    crashed: BaseException | None = None

    @property
    def settled(self) -> int:
        """How many deliveries have their final verdict."""
        return self.delivered + self.dead_lettered

    @property
    def ended(self) -> Ended:
        """What the breaker is told of the run's end."""
        return Ended(self.settled, self.sent if self.held_up else self.total, self.delivered, self.spent)


def request_of(row: dict[str, Any]) -> Request:
    """Return the request of a row of a delivery file."""
    return Request(
        index=0,
        delivery_id=delivery_id_text(row["delivery_id"]),
        payload=row["payload"] or b"",
        content_type=row["content_type"] or "application/json",
        headers=json.loads(row["headers"]) if row["headers"] else {},
        order_key=row["order_key"],
    )


def outcome_row(item: Item, outcome: Outcome, answer: Answer | None, now: datetime) -> dict[str, Any]:
    """Return the row of schema OUTCOME for one attempt (`answer`), or for a decision made without one (None)."""
    return {
        "delivery_id": item.delivery_id,
        "rule": item.rule,
        "target": item.target,
        "attempt": item.attempts,
        "sent": answer is not None,
        "started_at": answer.started_at if answer else now,
        "duration_ms": answer.duration_ms if answer else 0.0,
        "outcome": type(outcome).__name__,
        "due_at": outcome.due_at if isinstance(outcome, RetryAt) else None,
        "reason": outcome.reason if isinstance(outcome, RetryAt | DeadLettered) else None,
        "code": answer.code if answer else None,
        "error_class": answer.error_class if answer else None,
        "error": (answer.error if answer else None) or (outcome.detail if isinstance(outcome, DeadLettered) else None),
        "response_head": answer.response_head if answer else None,
    }
