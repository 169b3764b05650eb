"""What is told at the end of each stage, of each push of a chunk, and of each look of the watcher."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class StageEnded:
    """One call of a stage; times are aware. `batch_id` None: it found nothing to do, or is of no single batch.

    `error` is the class of what it raised, None if it returned. A stage that was killed is told by nobody.
    """

    stage: str
    runner: str | None
    batch_id: str | None
    started_at: datetime
    ended_at: datetime
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TargetPushed:
    """What a push of a chunk came to for one target: deliveries; `sent` are those that this push sent."""

    rule: str
    target: str
    total: int
    sent: int
    delivered: int
    dead_lettered: int
    retried: int


@dataclass(frozen=True, slots=True)
class PushEnded:
    """One push of one chunk that had something to do; what it raised, the stage `push` tells."""

    batch_id: str
    chunk_id: int
    started_at: datetime
    ended_at: datetime
    targets: tuple[TargetPushed, ...]


@dataclass(frozen=True, slots=True)
class LookEnded:
    """One look of the watcher: for which runners, and retries, it started a run."""

    started_at: datetime
    ended_at: datetime
    started: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptMade:
    """One attempt at a delivery; `number` counts over all batches."""

    number: int
    started_at: datetime
    duration: timedelta
    outcome: str
    code: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class DeliverySettled:
    """What a committed batch came to for one delivery that is traced; `traceparent`: what its event brought.

    `verdict`: delivered, dead_lettered, or retry_scheduled and unknown, after which another batch goes on.
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
    verdict: str
    reason: str | None
    attempts: tuple[AttemptMade, ...]


class Telemetry(Protocol):
    """What is told; called by the thread that did the work, so it must be quick and keep what takes long for later.

    What it raises is logged and goes no further: deliveries do not depend on it.
    """

    def stage_ended(self, ended: StageEnded) -> None:
        """Take note of a stage."""

    def push_ended(self, ended: PushEnded) -> None:
        """Take note of a push; comes before its stage's end."""

    def look_ended(self, ended: LookEnded) -> None:
        """Take note of a look of the watcher: several a second."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return whether a delivery is traced: asked for each one of a committed batch."""

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Take note of a delivery that is traced; its batch is committed."""

    def close(self) -> None:
        """Send what is kept: the process is about to end."""


class NoTelemetry:
    """Listens to nothing."""

    def stage_ended(self, ended: StageEnded) -> None:
        """Do nothing."""

    def push_ended(self, ended: PushEnded) -> None:
        """Do nothing."""

    def look_ended(self, ended: LookEnded) -> None:
        """Do nothing."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return that it is not."""
        return False

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


#: What a runtime has unless it is given another; where it stands, times are not even taken.
NO_TELEMETRY: Final = NoTelemetry()
