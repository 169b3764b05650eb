"""What the ledger's rows look like to the rest of the product: frozen values, times aware and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from eventbridge.breaker import TargetState as TargetState
from eventbridge.breaker import TargetStatus as TargetStatus
from eventbridge.order import Span
from eventbridge.queue import Queue

BatchKind = Literal["normal", "retry", "replay", "redrive"]
BatchState = Literal["planned", "buffered", "routed", "settling", "committed"]
ChunkState = Literal["NEW", "STARTED", "ERROR", "TIMEOUT", "COMPLETED"]
FileKind = Literal["buffer", "delivery", "outcome", "settlement", "dead_letter"]
ParkedState = Literal["due", "held", "closed"]
RedriveState = Literal["running", "done", "cancelled"]


@dataclass(frozen=True)
class Range:
    """Offsets `start` (included) to `end` (excluded) of one queue."""

    queue: Queue
    start: int
    end: int


@dataclass(frozen=True)
class Batch:
    """The unit that one DAG run moves; `bus` is empty where no event of one is routed."""

    batch_id: str
    kind: BatchKind
    runner: str
    bus: str
    state: BatchState
    rule_set: str  # hash of the frozen rule set
    planned_at: datetime
    deadline_at: datetime | None = None
    replay_id: str = ""
    committed_at: datetime | None = None
    bus_committed_at: datetime | None = None  # when the bus itself was told; None = the next listen repeats it

    @property
    def routes(self) -> bool:
        """Whether route is one of its stages: it accounts for all its delivery files, else for what its chunks name."""
        return self.kind not in ("retry", "redrive") or self.bus != ""


@dataclass(frozen=True)
class BatchFile:
    """A file that a stage published for a batch under a key; the first recorder of a key wins.

    `path` is None where a slice had nothing to write. `detail` is JSON: counts, gaps, fingerprints, pieces.
    """

    batch_id: str
    kind: FileKind
    key: str
    path: str | None
    rows: int
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """Rows of one delivery file, all of one rule and target, with what earlier batches know of them.

    `rows` is text made by `eventbridge.rowset.encode`. `attempts` counts those made in earlier batches;
    `lineage` names the (batch_id, chunk_id) pairs that made them, oldest first;
    `parked_id` is the parked row the piece was taken from, None in a normal batch.
    """

    file: str
    rows: str
    count: int
    size: int  # payload bytes
    rule: str
    target: str
    attempts: int = 0
    held_seconds: float = 0.0
    lineage: tuple[tuple[str, int], ...] = ()
    parked_id: int | None = None


#: The error of a chunk whose push ended without a word.
PUSH_LOST = "Its push was killed, or was still at work when the batch was settled; what it had written down counts."


@dataclass(frozen=True)
class Chunk:
    """What one push task handles. Not handed out = settled as Unknown and parked, due now or held."""

    batch_id: str
    chunk_id: int
    pool: str
    weight: int
    pieces: tuple[Piece, ...]
    rows: int
    size: int
    handed_out: bool = True
    map_index: int | None = None  # position among the chunks handed out
    held: str = ""  # not handed out and to be held: why
    claim: int = 0
    state: ChunkState = "NEW"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker: str = ""  # host and process that claimed it last
    succeeded: int = 0
    failed: int = 0
    error: str = ""


@dataclass(frozen=True)
class Parked:
    """Deliveries of one batch, chunk and target that wait for another batch.

    Named by (batch_id, settlement, chunk_id, rule, target, reason, attempts, lane, and the due_at and held it was
    parked with): to park the same name again with the same files is to park nothing.
    State `due`: may be taken once `due_at` has come; `held`: waits for a person; `closed`: a committed batch took it.
    """

    batch_id: str
    chunk_id: int
    runner: str
    rule: str
    target: str
    reason: str
    attempts: int
    due_at: datetime
    files: tuple[tuple[str, str], ...]  # (delivery file, encoded rows)
    count: int
    size: int
    lane: str = "slow"
    held: str = ""
    held_seconds: float = 0.0
    lineage: tuple[tuple[str, int], ...] = ()
    expires_at: datetime | None = None
    order_shard: int | None = None  # of an ordered target
    order_spans: tuple[Span, ...] = ()  # where in their queues its deliveries lie
    state: ParkedState = "due"
    parked_at: datetime | None = None
    held_since: datetime | None = None
    taken_by: str | None = None
    closed_by: str | None = None
    settlement: int = 0  # the settlement that said so: 0, or the number of a supplement
    parked_id: int | None = None  # given by the ledger


@dataclass(frozen=True)
class Reference:
    """A rule's share of a batch that is not routed yet: rows of buffer files that its pattern let through.

    Named by (batch_id, rule, reason). State `due`: may be taken once `due_at` has come; `held`: waits for a person,
    since `due_at`; `closed`: a committed batch took it. `made_at` is when its oldest event was first referred.
    """

    batch_id: str
    runner: str
    rule: str
    reason: str
    files: tuple[tuple[str, str], ...]  # (buffer file, encoded rows)
    count: int
    due_at: datetime
    made_at: datetime
    expires_at: datetime | None = None
    state: ParkedState = "due"
    tries: int = 0  # batches that took it, or what it was part of, up for nothing
    held_seconds: float = 0.0  # that do not count towards its age
    taken_by: str | None = None
    closed_by: str | None = None
    reference_id: int | None = None  # given by the ledger


@dataclass(frozen=True)
class Redrive:
    """A wish to deliver dead letters again, carried out by batches in turn.

    `run` names who asked: to ask again under the same name is to ask for the same redrive. `selection` is JSON.
    `rate` is in letters a second, None: as fast as it goes; before `next_at` no further batch is planned.
    """

    redrive_id: str
    run: str
    selection: Mapping[str, Any]
    started_at: datetime
    next_at: datetime
    rate: float | None = None
    retransform: bool = False
    again: bool = False  # also what was redriven before
    state: RedriveState = "running"
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Redriven:
    """Rows of a dead letter file that a batch took up; `turn` counts the batches that took of this file, from 0."""

    file: str
    turn: int
    redrive_id: str
    batch_id: str
    rows: str  # made by `eventbridge.rowset.encode`
    count: int


@dataclass(frozen=True)
class HeldRule:
    """A rule that is not routed: this version of it, why, and since when."""

    rule: str
    version: str
    reason: str
    since: datetime


@dataclass(frozen=True)
class ConsumerOffset:
    """The committed offset of a consumer group (= runner) in one queue: the smallest not yet settled.

    It counts on the log of `bus_identity`; empty: registered by a version that did not know, or the bus has none.
    """

    group: str
    bus: str
    queue: Queue
    offset: int
    message_id: str
    changed_at: datetime
    bus_identity: str = ""


class DueTarget(NamedTuple):
    """A target with deliveries that are due, and how many."""

    rule: str
    target: str
    deliveries: int
    first_due_at: datetime  # of what has been due the longest


@dataclass(frozen=True)
class ParkedCount:
    """How many rows and deliveries of a target wait in one state for one reason, and when the first is due."""

    rule: str
    target: str
    state: ParkedState
    reason: str
    rows: int
    count: int
    next_due_at: datetime


@dataclass(frozen=True)
class WaitingTarget:
    """What of one target waits in one state for one reason (`held`), none of it taken by a batch."""

    rule: str
    target: str
    state: ParkedState
    held: str
    newest_held_since: datetime | None  # when the last of it was held; None = it is not held
