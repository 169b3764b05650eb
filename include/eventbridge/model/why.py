"""What is known of one event: where it lies, what each rule says to it, and all that was done with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

EventStatus = Literal["valid", "duplicate", "malformed"]
#: How a rule of then stands to that of today.
ComparedToday = Literal["same", "changed", "removed", "added", "unknown"]
#: `shadow`: a shadow did not accept it, or was not sent it, and nothing more becomes of it.
DeliveryState = Literal["delivered", "dead_lettered", "shadow", "scheduled", "on_hold", "under way"]
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
class EventPlace:
    """Where an event lies on its bus."""

    bus: str
    topic: str
    broker: str
    partition_id: int
    offset: int

    def __str__(self) -> str:
        return "/".join(str(part) for part in vars(self).values() if part != "")


@dataclass(frozen=True)
class EventName:
    """What the ids of an event's deliveries are made of, and where it lies; without an id if it has none.

    `rule`: only deliveries of this one are meant.
    """

    place: EventPlace
    source: str
    event_id: str
    rule: str | None = None


@dataclass(frozen=True)
class Landing:
    """Where one runner's batch put an event in the archive; `archived`: it is there still."""

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
    """One condition of a pattern, whether an event meets it, and what the event holds there, each value as JSON."""

    met: bool
    path: str
    condition: str
    values: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class RuleResult:
    """What a rule, as the batch had it, says to an event.

    `matched` is the pattern's result (None: the event cannot be read any more). `where_met` is what Spark said to
    `where`, told by what was routed; None: there is no `where`, or it was not asked. `matches_today` is the response of
    today's pattern where that differs from the one of then.
    """

    rule: str
    version: str
    runner: str
    enabled: bool
    matched: bool | None
    conditions: tuple[SeenCondition, ...]
    where: str | None = None
    where_met: bool | None = None
    today: ComparedToday = "same"
    matches_today: bool | None = None


@dataclass(frozen=True)
class DeliveryResult:
    """How one delivery of an event stands; `replay_id` "": it is not of a replay with ids of its own.

    `file` and `row` are where its request lies in the store, once its batch is settled.
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
    held: str | None = None
    file: str | None = None
    row: int | None = None


@dataclass(frozen=True)
class Step:
    """One thing that was done with an event; what does not apply is None.

    Of an attempt are `duration_ms` and `response_head`, the beginning of the response.
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
    """All that is known of one message with the id; `duplicate_of`: the message that its batch kept instead."""

    place: EventPlace
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
class Looked:
    """How far the archive was searched: batches, and of them those without an archive any more, and files read.

    `oldest` and `newest` are when the first and the last of the batches were planned.
    """

    batches: int
    pruned: int
    files: int
    oldest: datetime | None
    newest: datetime | None


@dataclass(frozen=True)
class RunnerStart:
    """At which offset of a partition a runner begins: with the oldest of its batches that is on record."""

    runner: str
    offset: int


@dataclass(frozen=True)
class BeforeStart:
    """A message on its bus that no runner took: each runner of the bus begins behind it."""

    place: EventPlace
    runners: tuple[RunnerStart, ...]

    def __str__(self) -> str:
        starts = ", ".join(f"{each.runner} begins after it, at offset {each.offset}" for each in self.runners)
        return f"{self.place}, and no runner took it: {starts}"


@dataclass(frozen=True)
class Why:
    """What became of an event: of every message with its id.

    `not_landed`: those that lie on their bus, and no batch has landed yet. `before_start`: those that lie there and are
    never taken; looked for where nothing else has the id. `notes` say how the search was limited, `unreadable` which
    files that may speak of the event could not be read.
    """

    event_id: str
    events: tuple[EventResult, ...]
    not_landed: tuple[EventPlace, ...]
    before_start: tuple[BeforeStart, ...]
    looked: Looked
    notes: tuple[str, ...]
    unreadable: tuple[str, ...]
