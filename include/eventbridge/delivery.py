"""What becomes of a delivery: attempt + answer + policy + now -> outcome. Pure; the clock and the dice are passed in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

VerdictName = Literal["Delivered", "DeadLettered", "RetryAt", "Unknown"]

#: Highest first. Two outcomes of one delivery are merged by rank, never by clock.
VERDICT_RANK: tuple[VerdictName, ...] = ("Delivered", "DeadLettered", "RetryAt", "Unknown")


@dataclass(frozen=True)
class Answer:
    """What a target said to one request.

    `accepted` answers that carry no HTTP code come from targets such as files. `code` is an HTTP status,
    None where there was no response; then `error_class` names what happened instead
    (`Timeout`, `ConnectionRefused`, `HostUnknown`, `TlsError`, `Interrupted`, `NetworkError`, `FileError`).
    """

    accepted: bool
    started_at: datetime
    duration_ms: float
    code: int | None = None
    error_class: str | None = None
    error: str | None = None
    retry_after: str | None = None  # the header as it came
    abort: bool = False  # header `webhook-delivery: abort-message`
    response_head: bytes = b""  # at most 20 KB


@dataclass(frozen=True)
class Delivered:
    """The target has it."""


@dataclass(frozen=True)
class RetryAt:
    """It is to be tried again, not before `due_at`."""

    due_at: datetime
    reason: str


@dataclass(frozen=True)
class DeadLettered:
    """It is given up; `disable_target` where the target said that it is gone (410)."""

    reason: str
    detail: str
    disable_target: bool = False


@dataclass(frozen=True)
class Unknown:
    """It was in flight, or never sent, when its push had to stop; it is tried again under the same id."""


Outcome = Delivered | RetryAt | DeadLettered | Unknown
