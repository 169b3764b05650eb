"""Defines a chunk, its pieces of delivery files, and the pools that run chunks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

ChunkState = Literal["new", "started", "error", "timeout", "completed"]

#: The error of a chunk whose push ended without a report.
PUSH_LOST = "The push was killed, or was still running when the batch was settled. Its recorded responses count."

#: The pool and priority weight of every chunk of a retry or redrive batch; the weight is lower than those of new
#: deliveries (250 to 750).
SLOW_LANE_POOL = "eventbridge.retry"
SLOW_LANE_WEIGHT = -200
#: The pool and priority weight of every chunk of a replay: the lowest of all.
REPLAY_LANE_POOL = "eventbridge.replay"
REPLAY_LANE_WEIGHT = -400


@dataclass(frozen=True)
class Piece:
    """Rows of one delivery file, all of one rule and target, with their history in earlier batches.

    `rows` is encoded by `eventbridge.model.rowset.encode`. `attempts` counts the attempts of earlier batches; `lineage`
    lists the (batch_id, chunk_id) pairs that made them, oldest first. `pending_id` is the pending row from which the
    piece was taken, or None in a normal batch.
    """

    file: str
    rows: str
    count: int
    size: int  # payload bytes
    rule: str
    target: str
    attempts: int = 0
    on_hold_seconds: float = 0.0
    lineage: tuple[tuple[str, int], ...] = ()
    pending_id: int | None = None


@dataclass(frozen=True)
class Chunk:
    """The work of one push task. If it is not handed out, its deliveries are settled as `unknown`, due or on hold."""

    batch_id: str
    chunk_id: int
    pool: str
    weight: int
    pieces: tuple[Piece, ...]
    rows: int
    size: int
    handed_out: bool = True
    map_index: int | None = None  # position among the chunks handed out
    hold_reason: str = ""  # why the chunk is not handed out but put on hold
    claim: int = 0
    state: ChunkState = "new"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker: str = ""  # host and process that claimed it last
    succeeded: int = 0
    failed: int = 0
    error: str = ""
    cpu: int = 0  # CPU time of its pushes in microseconds
    claimed_until: datetime | None = None  # until then, no other push claims it unless its push is dead


class LiveClaim(NamedTuple):
    """An unexpired claim on a chunk by the push that works on it."""

    chunk_id: int
    claim: int
    worker: str
    until: datetime


class ChunkTotal(NamedTuple):
    """The totals of a batch's chunks that are handed out to one pool."""

    pool: str
    chunks: int
    rows: int
    size: int


@dataclass(frozen=True)
class AppliedSlots:
    """The slots that a rule file last set for a pool, and the slots that Airflow last reported, each with its time.

    If the two differ, an operator changed the pool; the operator's value applies until the value in the file changes.
    """

    pool: str
    slots: int
    applied_at: datetime
    seen_slots: int
    seen_at: datetime
