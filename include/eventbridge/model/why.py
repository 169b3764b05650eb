"""Defines the history of an event: its positions, the result of each rule, and all steps of its deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

EventStatus = Literal["valid", "duplicate", "malformed"]
#: The difference between a rule of a past batch and the current rule.
RuleChange = Literal["same", "changed", "removed", "added", "unknown"]
#: `shadow` is a delivery that a shadow did not accept, or that was not sent to it; it is not retried.
DeliveryState = Literal["delivered", "dead_lettered", "shadow", "scheduled", "on_hold", "in_progress"]
StepName = Literal[
    "published",
    "landed",
    "deferred",
    "attempt",
    "settled",
    "pending",
    "dead-lettered",
    "redriven",
    "replayed",
    "pruned",
]


@dataclass(frozen=True)
class EventPosition:
    """The position of an event on its bus."""

    bus: str
    topic: str
    broker: str
    partition_id: int
    offset: int

    def __str__(self) -> str:
        return "/".join(str(part) for part in vars(self).values() if part != "")


@dataclass(frozen=True)
class EventName:
    """The values from which the ids of an event's deliveries are computed, and the event's position.

    `event_id` is "" if the event has no id. If `rule` is set, only deliveries of this rule are meant.
    """

    position: EventPosition
    source: str
    event_id: str
    rule: str | None = None


@dataclass(frozen=True)
class Landing:
    """The place in the archive where a runner's batch stored an event; `archived` is True if the archive file still
    exists."""

    batch_id: str
    runner: str
    state: str
    rule_set: str
    planned_at: datetime
    file: str
    row: int
    arrived_at: datetime | None
    archived: bool = True


@dataclass(frozen=True)
class SeenCondition:
    """One condition of a pattern, whether an event meets it, and the event's values at its path, each as JSON."""

    met: bool
    path: str
    condition: str
    values: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class RuleResult:
    """The result of a rule for an event, in the version that the batch used.

    `matched` is the pattern's result; it is None if the event can no longer be read. `where_met` is Spark's result of
    `where`, derived from what was routed; it is None if there is no `where` or it was not evaluated.
    `current_version_matches` is the result of the current pattern if that differs from the batch's pattern.
    """

    rule: str
    version: str
    runner: str
    enabled: bool
    matched: bool | None
    conditions: tuple[SeenCondition, ...]
    where: str | None = None
    where_met: bool | None = None
    change: RuleChange = "same"
    current_version_matches: bool | None = None


@dataclass(frozen=True)
class DeliveryResult:
    """The status of one of an event's deliveries; `replay_id` is empty unless it belongs to a replay with ids of its
    own.

    `file` and `row` are where its request is in the store, once its batch is settled.
    """

    rule: str
    target: str
    delivery_id: str
    replay_id: str
    state: DeliveryState
    attempts: int
    reason: str | None
    batch_id: str
    due_at: datetime | None = None
    hold_reason: str | None = None
    file: str | None = None
    row: int | None = None


@dataclass(frozen=True)
class Step:
    """One step in the history of an event; fields that do not apply are None.

    `duration_ms` and `response_head`, the beginning of the response, belong to an attempt.
    """

    at: datetime | None
    what: StepName
    batch_id: str
    rule: str | None = None
    target: str | None = None
    delivery_id: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    code: int | None = None
    reason: str | None = None
    detail: str | None = None
    duration_ms: float | None = None
    response_head: str | None = None


@dataclass(frozen=True)
class EventResult:
    """The history of one message with the event's id; `duplicate_of` is the message that the batch kept instead of
    it."""

    position: EventPosition
    status: EventStatus | None
    reason: str | None
    source: str | None
    type: str | None
    published_at: datetime | None
    duplicate_of: str | None
    landings: tuple[Landing, ...]
    rules: tuple[RuleResult, ...]
    deliveries: tuple[DeliveryResult, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class SearchExtent:
    """The part of the archive that was searched: the number of batches, of batches that no longer have an archive, and
    of files read.

    `oldest` and `newest` are when the first and the last of the batches were planned.
    """

    batches: int
    pruned: int
    files: int
    oldest: datetime | None
    newest: datetime | None


@dataclass(frozen=True)
class RunnerStart:
    """The offset of a partition at which a runner begins: the start of its oldest recorded batch."""

    runner: str
    offset: int


@dataclass(frozen=True)
class BeforeStart:
    """A message that no runner took because each runner of the bus began after it."""

    position: EventPosition
    runners: tuple[RunnerStart, ...]

    def __str__(self) -> str:
        starts = ", ".join(f"{each.runner} begins after it, at offset {each.offset}" for each in self.runners)
        return f"{self.position}, and no runner took it: {starts}"


@dataclass(frozen=True)
class Why:
    """The history of an event, which consists of the histories of all messages with its id.

    `not_landed` are messages that no batch has landed yet. `before_start` are messages that no runner will take; they
    are searched for only if nothing else has the id. `notes` describe the limits of the search. `unreadable` lists the
    files that may concern the event but could not be read.
    """

    event_id: str
    events: tuple[EventResult, ...]
    not_landed: tuple[EventPosition, ...]
    before_start: tuple[BeforeStart, ...]
    searched: SearchExtent
    notes: tuple[str, ...]
    unreadable: tuple[str, ...]
