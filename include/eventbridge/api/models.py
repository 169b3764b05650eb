"""The models of responses, from which OpenAPI describes them; most are the dataclasses of the views themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from eventbridge.dead_letters.reader import DeadLetterGroup
from eventbridge.model.api import OperatorAction
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import AppliedSlots
from eventbridge.model.quality import QualityCheck
from eventbridge.model.rule_state import RuleChange
from eventbridge.views.chunks import ChunkStatus
from eventbridge.views.event_search import FoundEvent
from eventbridge.views.rules import RuleVersion
from eventbridge.views.schemas import Schema, SchemaLine
from eventbridge.views.shadow import ShadowReport
from eventbridge.views.stats import BusDay, RuleDay
from eventbridge.views.target_status import TargetLine

_Next = Annotated[str | None, Field(description="The `cursor` of the next page; null on the last one.")]
_Unreadable = Annotated[list[str], Field(description="The errors of files that could not be read.")]


class _Open(BaseModel):
    """A document that may have more members than its model names."""

    model_config = ConfigDict(extra="allow")


class BatchList(BaseModel):
    """A page of batches."""

    batches: list[Batch]
    next: _Next


class Bus(_Open):
    """A bus, its partitions with lag, and their flow."""

    bus: str
    source: str
    topics: list[str]
    rules: int
    partitions: list[dict[str, Any]]
    flows: list[dict[str, Any]]


class BusList(BaseModel):
    """A page of buses."""

    buses: list[Bus]
    next: _Next


class RuleList(_Open):
    """The buses and a page of the rules in force, with their defaults filled in."""

    rules: dict[str, dict[str, Any]]
    buses: dict[str, dict[str, Any]]
    next: _Next


class RuleVersionList(BaseModel):
    """The newest versions of a rule."""

    versions: list[RuleVersion]


class RuleChangeList(BaseModel):
    """A page of rule changes."""

    rule_changes: list[RuleChange]
    next: _Next


class ShadowList(BaseModel):
    """The comparison of each of a rule's shadows with the shadow's target."""

    shadows: list[ShadowReport]


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


class DeadLetter(_Open):
    """A dead letter; event, request and attempts are in the whole document only."""

    name: str
    delivery_id: str | None
    rule: str | None
    target: str | None
    reason: str
    detail: str | None


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


class Redrive(_Open):
    """A redrive, with the number of its dead letters by outcome."""

    redrive_id: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    selection: Mapping[str, Any]
    rate: float | None
    retransform: bool
    again: bool
    taken: int
    outcomes: dict[str, int]


class RedriveList(BaseModel):
    """A page of redrives."""

    redrives: list[Redrive]
    next: _Next


class RedriveSurvey(BaseModel):
    """The dead letters that a redrive would take, and those that it would leave."""

    taken: list[dict[str, Any]]
    left: list[dict[str, Any]]


class RedriveCancelled(BaseModel):
    """The state of a redrive after the call."""

    redrive_id: str
    state: str
    cancelled: bool


class Replay(_Open):
    """A replay with its progress; the document of one replay also has `batches` and `outcomes`."""

    replay_id: str
    state: str
    bus: str
    started_at: datetime
    ended_at: datetime | None
    selection: Mapping[str, Any]
    ids: str
    skip_delivered: bool
    rate: float | None
    read: int
    taken: int


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
    """Chunks of the newest batches."""

    chunks: list[ChunkStatus]


class SchemaList(BaseModel):
    """A page of event types."""

    schemas: list[SchemaLine]
    next: _Next


class TypeSchemas(BaseModel):
    """The fields of an event type on each bus."""

    schemas: list[Schema]


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

    since: datetime
    until: datetime
    rules: list[RuleDay]
    buses: list[BusDay]
    next: _Next


class RulesChecked(_Open):
    """The result of checking a rule file."""
