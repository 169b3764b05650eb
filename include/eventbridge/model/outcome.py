"""The outcome of an attempt, and the verdicts into which outcomes are frozen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

StatusName = Literal["delivered", "dead_lettered", "retry_scheduled", "unknown"]

#: Highest first. Two outcomes of one delivery are merged by rank, never by clock.
STATUS_RANK: tuple[StatusName, ...] = ("delivered", "dead_lettered", "retry_scheduled", "unknown")


#: The reason of a deferral: the delivery may not be sent yet.
NOT_BEFORE = "not_before"


#: The reason of a retry: the delivery was sent, but the push stopped listening before a response came.
INTERRUPTED = "Interrupted"


#: Why a shadow's delivery counts as settled although its target does not have it: it could not be made, or its batch
#: was over.
SHADOW_FAILED = "shadow_failed"
SHADOW_NOT_SENT = "shadow_not_sent"


@dataclass(frozen=True)
class Delivered:
    """The target has accepted the delivery."""

    status: ClassVar[StatusName] = "delivered"


@dataclass(frozen=True)
class RetryAt:
    """The delivery is retried, not before `due_at`; `reason` has few values (`HTTP 503`, `Timeout`), for grouping."""

    status: ClassVar[StatusName] = "retry_scheduled"

    due_at: datetime
    reason: str


@dataclass(frozen=True)
class DeadLettered:
    """The delivery is dead-lettered; `disable_target` if the target responded that it is gone (410)."""

    status: ClassVar[StatusName] = "dead_lettered"

    reason: str
    detail: str
    disable_target: bool = False


Outcome = Delivered | RetryAt | DeadLettered

#: The outcome of every accepted response.
DELIVERED = Delivered()
#: The reason of a deferral: the target asked for a pause.
TARGET_PAUSED = "target_paused"
