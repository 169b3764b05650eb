"""The models of responses, from which OpenAPI describes them; most are the dataclasses of the views themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eventbridge.dead_letters.reader import DeadLetterGroup
from eventbridge.errors import RuleError
from eventbridge.model.api import OperatorAction
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import AppliedSlots
from eventbridge.model.quality import QualityCheck
from eventbridge.model.rule_state import RuleChange
from eventbridge.rules.model import (
    DeliverBetween,
    DeliverWithin,
    Expect,
    Owner,
    RetryPolicy,
    Runner,
    Transform,
    Webhook,
)
from eventbridge.views.buses import BusStatus
from eventbridge.views.chunks import ChunkStatus
from eventbridge.views.event_search import FoundEvent
from eventbridge.views.queues import QueueStatus
from eventbridge.views.rules import RuleVersion
from eventbridge.views.schemas import Schema, SchemaLine
from eventbridge.views.shadow import Difference
from eventbridge.views.stats import BusDay, RuleDay
from eventbridge.views.target_status import TargetLine

_Next = Annotated[str | None, Field(description="The `cursor` of the next page; null on the last one.")]
_Unreadable = Annotated[list[str], Field(description="The errors of files that could not be read.")]


class _Open(BaseModel):
    """A document with further members, which depend on its type."""

    model_config = ConfigDict(extra="allow")


class BatchList(BaseModel):
    """A page of batches."""

    batches: list[Batch]
    next: _Next


class BusList(BaseModel):
    """A page of buses."""

    buses: list[BusStatus]
    next: _Next


class QueueList(BaseModel):
    """A page of queues."""

    queues: list[QueueStatus]
    next: _Next


class TargetDefinition(_Open):
    """A target in a rule file, with its defaults filled in, and the settings of its type."""

    name: str
    type: str
    transform: Transform
    retry: RetryPolicy
    errors_tolerance: Literal["all", "none"]
    ordering_key: str | None
    content_mode: Literal["structured", "binary", "data"]
    timeout_seconds: float
    max_in_flight: int
    dead_letter_queue: TargetDefinition | None
    disable_after_seconds: float | None
    rate_per_second: float | None
    not_before: str | None
    deliver_between: DeliverBetween | None
    deliver_within: DeliverWithin | None
    shadow_of: str | None


class RuleDefinition(BaseModel):
    """A rule, with its defaults filled in."""

    name: str
    bus: str
    runner: str
    pattern: dict[str, Any] = Field(description="The pattern, as in the rule file.")
    targets: dict[str, TargetDefinition]
    where: str | None
    description: str
    owner: str | None = Field(None, description="Absent if the bus has the owner.")
    enabled: bool
    priority: Literal["high", "medium", "low"]
    concurrency: int | None
    pool: str | None
    expect: Expect | None
    pending_max: int
    version: str


class SourceDefinition(_Open):
    """The source of a bus, with its defaults filled in, and the settings of its type."""

    type: str
    topics: list[str]
    start_at: str


class BusDefinition(_Open):
    """A bus, with its defaults filled in; members that have their defaults may be absent."""

    name: str
    source: SourceDefinition
    retention_seconds: float
    max_backlog: int | None = None
    owner: str | None = None
    webhooks: dict[str, Webhook] = {}
    weights: dict[str, int] = {}


class RuleList(BaseModel):
    """The buses and a page of the rules in force, with their defaults filled in."""

    format: int = Field(description="The version of this document's format.")
    buses: dict[str, BusDefinition]
    owners: dict[str, Owner] = Field({}, description="The quotas of owners; absent if there are none.")
    runners: dict[str, Runner] = Field({}, description="The modes of runners; absent if every mode is `batch`.")
    rules: dict[str, RuleDefinition]
    next: _Next


class RuleVersionList(BaseModel):
    """A page of versions of a rule."""

    versions: list[RuleVersion]
    next: _Next


class RuleChangeList(BaseModel):
    """A page of rule changes."""

    rule_changes: list[RuleChange]
    next: _Next


class ShadowComparison(BaseModel):
    """How a shadow compares with its target over some batches; `failed` counts failures of the shadow."""

    shadow: str
    target: str
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    compared: int
    other_outputs: int
    responded: int = Field(description="Events for which both deliveries got a response.")
    other_responses: int
    failed: int
    not_sent: int
    samples: list[Difference]


class ShadowList(BaseModel):
    """A page of comparisons of the shadows of a rule with their targets."""

    shadows: list[ShadowComparison]
    next: _Next


class TargetList(BaseModel):
    """A page of targets."""

    targets: list[TargetLine]
    next: _Next


class TargetReached(BaseModel):
    """Whether a target can be reached."""

    rule: str
    target: str
    reached: bool
    error: str | None


class TargetResponse(BaseModel):
    """The response of a target to one event."""

    rule: str
    target: str
    accepted: bool
    code: int | None
    error_class: str | None
    error: str | None
    duration_ms: float
    response_head: str


class TargetEnabled(BaseModel):
    """The number of a target's deliveries that became due."""

    rule: str
    target: str
    released: int


class DeadLetterAttempt(BaseModel):
    """An attempt of a dead letter, with the beginning of the response."""

    number: int
    started_at: datetime
    duration_ms: float
    outcome: str
    code: int | None
    error_class: str | None
    error: str | None
    response_head: str | None


class DeadLetter(BaseModel):
    """A dead letter; event, request, request_headers and attempts are in the whole document only."""

    name: str
    delivery_id: str | None = Field(description="null for an event that never became a delivery.")
    rule: str | None
    rule_version: str | None
    bus: str
    target: str | None
    topic: str
    broker: str
    partition_id: int
    offset: int
    source: str | None
    event_id: str | None
    event: str | None = Field(None, description="The complete event, as it arrived.")
    request: str | None = Field(None, description="The body of the request; null if there was none.")
    request_content_type: str | None
    request_headers: str | None = Field(None, description="The headers of the request, as JSON.")
    reason: str
    detail: str | None
    attempts: list[DeadLetterAttempt] | None = None
    arrived_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    batch_id: str


class DeadLetterList(BaseModel):
    """A page of dead letters."""

    dead_letters: list[DeadLetter]
    unreadable: _Unreadable
    next: _Next


class DeadLetterGroupList(BaseModel):
    """The groups of one page of dead letters."""

    groups: list[DeadLetterGroup]
    unreadable: _Unreadable
    next: _Next


class EventList(BaseModel):
    """A page of archived events."""

    events: list[FoundEvent]
    unreadable: _Unreadable
    next: _Next


class RedriveSelection(BaseModel):
    """The filters of a redrive; those that are not set are absent."""

    rule: str | None = None
    target: str | None = None
    reason: str | None = None
    error: str | None = None
    since: datetime | None = Field(None, alias="from")
    until: datetime | None = Field(None, alias="to")
    names: list[str] = []
    sql: str | None = None
    payloads: bool = Field(True, description="false if `error` is not searched in text that may quote an event.")


class Redrive(BaseModel):
    """A redrive, with the number of its dead letters by outcome."""

    redrive_id: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    selection: RedriveSelection
    rate: float | None
    retransform: bool
    again: bool
    taken: int
    outcomes: dict[str, int]


class RedriveList(BaseModel):
    """A page of redrives."""

    redrives: list[Redrive]
    next: _Next


class RedriveTaken(BaseModel):
    """The number of dead letters of a target that a redrive would take."""

    of: str = Field(description="`rule/target`.")
    count: int


class RedriveLeft(RedriveTaken):
    """The number of dead letters of a target that a redrive would leave, and why."""

    why: str


class RedriveSurvey(BaseModel):
    """The dead letters that a redrive would take, and those that it would leave."""

    taken: list[RedriveTaken]
    left: list[RedriveLeft]


class RedriveCancelled(BaseModel):
    """The state of a redrive after the call."""

    redrive_id: str
    state: str
    cancelled: bool


class ReplaySelection(BaseModel):
    """The filters of a replay; those that are not set are absent."""

    rules: list[str] = []
    targets: list[str] = []
    pattern: str | None = Field(None, description="The pattern, as JSON.")
    sql: str | None = None
    as_of: Literal["current", "original"]


class Replay(BaseModel):
    """A replay with its progress; a list has `reached`, the document of one replay has `batches` and `outcomes`."""

    replay_id: str
    state: str
    bus: str
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    started_at: datetime
    ended_at: datetime | None
    selection: ReplaySelection
    ids: Literal["new", "same"]
    skip_delivered: bool
    rate: float | None
    batches: int | None = None
    read: int
    taken: int
    outcomes: dict[str, int] | None = None
    reached: datetime | None = Field(None, description="When the batch of the current archive file was planned.")


class ReplayList(BaseModel):
    """A page of replays."""

    replays: list[Replay]
    next: _Next


class ReplayChanged(BaseModel):
    """The state of a replay after the call."""

    replay_id: str
    state: str
    changed: bool


class ActionList(BaseModel):
    """A page of recorded actions."""

    actions: list[OperatorAction]
    next: _Next


class ChunkList(BaseModel):
    """A page of chunks."""

    chunks: list[ChunkStatus]
    next: _Next


class SchemaList(BaseModel):
    """A page of event types."""

    schemas: list[SchemaLine]
    next: _Next


class TypeSchemas(BaseModel):
    """A page of schemas of an event type, one for each bus."""

    schemas: list[Schema]
    next: _Next


class PoolList(BaseModel):
    """A page of pools."""

    pools: list[AppliedSlots]
    next: _Next


class QualityCheckList(BaseModel):
    """A page of checked hours."""

    quality_checks: list[QualityCheck]
    next: _Next


class StatsPage(BaseModel):
    """Stats by day, for a page of rules and for all buses."""

    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    rules: list[RuleDay]
    buses: list[BusDay]
    next: _Next


class RulesChecked(BaseModel):
    """The result of checking a rule file: its errors or, if there are none, the numbers of buses and rules."""

    errors: list[RuleError]
    rule_set: str | None = Field(None, description="The hash of the rule set.")
    buses: int | None = None
    rules: int | None = None
    tests: int | None = Field(None, description="The number of tests in the rules, all of which passed.")
    warnings: list[str] | None = Field(None, description="Conditions that can never match.")
