"""Defines a target's response to one attempt, the outcome of the attempt, and the status of a settled delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal, NamedTuple

StatusName = Literal["delivered", "dead_lettered", "retry_scheduled", "unknown"]
#: The statuses by rank, the highest first. Two outcomes of one delivery are merged by rank, never by clock.
STATUS_RANK: tuple[StatusName, ...] = ("delivered", "dead_lettered", "retry_scheduled", "unknown")

#: The reason for deferring a delivery that may not be sent yet.
NOT_BEFORE = "not_before"

#: The reason for retrying a delivery that the push sent, but for whose response it stopped waiting.
INTERRUPTED = "Interrupted"
#: The error class of an attempt that a proxy prevented, which says nothing about the target.
PROXY_FAILED = "ProxyFailed"
#: The error class of a delivery that was not sent because its target has too much to do; the target is paused as after
#: a response with 429.
TARGET_BUSY = "TargetBusy"
#: The error class of a delivery that a plug-in reports as never to be accepted.
REJECTED = "Rejected"

#: The reasons why a shadow's delivery counts as settled although its target does not have it: it could not be rendered,
#: or was not sent before its batch ended.
SHADOW_FAILED = "shadow_failed"
SHADOW_NOT_SENT = "shadow_not_sent"
#: The reason for deferring a delivery because its target asked for a pause.
TARGET_PAUSED = "target_paused"


class Response(NamedTuple):
    """The response of a target to one request.

    `code` is an HTTP status. It is None for an `accepted` response of a target without HTTP, such as a file, and if
    there was no response. In the latter case, `error_class` names what happened instead (`Timeout`,
    `ConnectionRefused`, `HostUnknown`, `TlsError`, `Interrupted`, `NetworkError`, `FileError`; `AddressRefused`: SSRF
    protection refused an internal address; `TokenUnavailable`: the target's credentials could not be obtained;
    `InvalidHeader`: the request can never be sent as it is; for other targets also the classes on their pages,
    `docs/howto/connect-*.md`). `stalled_ms` is the part of `duration_ms` in which this process did not listen,
    because it had no processor or was stopped; the rest is the time that the target took.
    """

    accepted: bool
    started_at: datetime
    duration_ms: float
    code: int | None = None
    error_class: str | None = None
    error: str | None = None
    retry_after: str | None = None  # the header as received
    abort: bool = False  # header `webhook-delivery: abort-message`
    response_head: bytes = b""  # at most 20 KB
    stalled_ms: float = 0.0

    @property
    def took_seconds(self) -> float:
        """The number of seconds that the target took to respond."""
        return max(0.0, self.duration_ms - self.stalled_ms) / 1000


@dataclass(frozen=True)
class Delivered:
    """The target has accepted the delivery."""

    status: ClassVar[StatusName] = "delivered"


@dataclass(frozen=True)
class RetryAt:
    """The delivery is retried, not before `due_at`.

    `reason` has few different values (`HTTP 503`, `Timeout`), for grouping.
    """

    status: ClassVar[StatusName] = "retry_scheduled"

    due_at: datetime
    reason: str


@dataclass(frozen=True)
class DeadLettered:
    """The delivery is dead-lettered; `disable_target` is True if the target responded that it is gone (410)."""

    status: ClassVar[StatusName] = "dead_lettered"

    reason: str
    detail: str
    disable_target: bool = False


Outcome = Delivered | RetryAt | DeadLettered


#: The outcome of every accepted response.
DELIVERED = Delivered()


@dataclass(frozen=True)
class SettledDelivery:
    """A row of `eventbridge.store.schemas.SETTLEMENT`, which describes the fields."""

    delivery_id: bytes
    rule: str
    target: str
    chunk_id: int | None
    file: str
    row: int
    status: StatusName
    attempts: int
    due_at: datetime | None
    lane: str | None
    hold_reason: str | None
    reason: str | None
    detail: str | None
    published_at: datetime
    arrived_at: datetime
    not_before: datetime | None
    settled_at: datetime | None
