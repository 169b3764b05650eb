"""What an attempt came to, and the verdicts that outcomes are frozen into."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

StatusName = Literal["delivered", "dead_lettered", "retry_scheduled", "unknown"]

#: Highest first. Two outcomes of one delivery are merged by rank, never by clock.
STATUS_RANK: tuple[StatusName, ...] = ("delivered", "dead_lettered", "retry_scheduled", "unknown")


#: Why a delivery is deferred that may not be sent yet.
NOT_BEFORE = "not_before"


#: Why a delivery is tried again that was sent and has no response, because the push stopped listening.
INTERRUPTED = "Interrupted"


#: Why a delivery of a shadow counts as dealt with that its target has not: it could not be made, or its batch was over.
SHADOW_FAILED = "shadow_failed"
SHADOW_NOT_SENT = "shadow_not_sent"


@dataclass(frozen=True)
class Delivered:
    """The target has it."""

    status: ClassVar[StatusName] = "delivered"


@dataclass(frozen=True)
class RetryAt:
    """It is to be tried again, not before `due_at`; `reason` has few values (`HTTP 503`, `Timeout`), to group by."""

    status: ClassVar[StatusName] = "retry_scheduled"

    due_at: datetime
    reason: str


@dataclass(frozen=True)
class DeadLettered:
    """It is dead-lettered; `disable_target` where the target said that it is gone (410)."""

    status: ClassVar[StatusName] = "dead_lettered"

    reason: str
    detail: str
    disable_target: bool = False


Outcome = Delivered | RetryAt | DeadLettered

#: The outcome of every response that is accepted, whatever else is known of its delivery.
DELIVERED = Delivered()
#: Why a delivery is deferred whose target asked for a pause.
TARGET_PAUSED = "target_paused"
