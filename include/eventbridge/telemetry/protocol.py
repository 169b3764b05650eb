"""Defines telemetry and its records: one for each stage, push of a chunk, poll of the watcher, and traced delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class StageEnded:
    """One call of a stage. Times are aware.

    `batch_id` is None if there was no work, or if the call does not belong to a single batch. `error` is the class of
    the exception that the stage raised, or None if it returned. A stage that is killed is not reported.
    """

    stage: str
    runner: str | None
    batch_id: str | None
    started_at: datetime
    ended_at: datetime
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TargetPushed:
    """The result that pushing a chunk had for one target, in deliveries. `sent` counts those that this push sent."""

    rule: str
    target: str
    total: int
    sent: int
    delivered: int
    dead_lettered: int
    retried: int


@dataclass(frozen=True, slots=True)
class PushEnded:
    """One push of a chunk that had deliveries to send. If it raised, the record of the `push` stage has the error."""

    batch_id: str
    chunk_id: int
    started_at: datetime
    ended_at: datetime
    targets: tuple[TargetPushed, ...]


@dataclass(frozen=True, slots=True)
class CheckEnded:
    """One poll of the watcher. `started` has the subjects for which it started runs: runners, and the retries."""

    started_at: datetime
    ended_at: datetime
    started: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptMade:
    """One attempt at a delivery. `number` counts the attempts in all batches, from 1."""

    number: int
    started_at: datetime
    duration: timedelta
    outcome: str
    code: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class DeliverySettled:
    """The result of one traced delivery in a committed batch. `traceparent` comes from its event.

    The delivery has ended if `status` is `delivered` or `dead_lettered`. Otherwise the status is `retry_scheduled` or
    `unknown`, and another batch continues the delivery.
    """

    batch_id: str
    delivery_id: bytes
    traceparent: str | None
    bus: str
    rule: str
    target: str
    source: str
    event_id: str
    published_at: datetime
    arrived_at: datetime
    settled_at: datetime | None
    status: str
    reason: str | None
    attempts: tuple[AttemptMade, ...]


class Telemetry(Protocol):
    """Receives the records. Its methods run in the thread that delivers, so they must be quick and defer long work.

    Their exceptions are logged and ignored, because deliveries do not depend on telemetry.
    """

    def stage_ended(self, ended: StageEnded) -> None:
        """Record a stage."""

    def push_ended(self, ended: PushEnded) -> None:
        """Record a push. This is called before the end of the push's stage."""

    def check_ended(self, ended: CheckEnded) -> None:
        """Record a poll of the watcher. This is called several times a second."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return whether a delivery is traced. This is called for each delivery of a committed batch."""

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Record a traced delivery of a committed batch."""

    def close(self) -> None:
        """Send everything queued, because the process is about to end."""


class NoTelemetry:
    """Ignores all records."""

    def stage_ended(self, ended: StageEnded) -> None:
        """Do nothing."""

    def push_ended(self, ended: PushEnded) -> None:
        """Do nothing."""

    def check_ended(self, ended: CheckEnded) -> None:
        """Do nothing."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return False."""
        return False

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


#: The default of a runtime. With it, times are not measured.
NO_TELEMETRY: Final = NoTelemetry()
