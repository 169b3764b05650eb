"""Defines redrives of dead letters, replays of archived events, and the rows that the batches of both took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from eventbridge.model.partition import Partition

RedriveState = Literal["running", "done", "cancelled"]

#: The header of a delivery with a new id, which names the replay, or the redrive that transformed the event again.
REPLAY_ID_HEADER = "eventbridge-replay-id"
ReplayState = Literal["running", "paused", "done", "cancelled"]

#: The prefix of `run` in a redrive or replay for which no DAG was triggered, so that the watcher starts the DAG.
RECORDED: Final = "recorded, "


@dataclass(frozen=True)
class Redrive:
    """A request to redeliver dead letters, carried out by one batch after the other.

    `run` names the requester. A second request with the same `run` is the same redrive. `selection` is JSON. `rate` is
    in dead letters per second, or None if unlimited; no further batch is planned before `next_at`.
    """

    redrive_id: str
    run: str
    selection: Mapping[str, Any]
    started_at: datetime
    next_at: datetime
    rate: float | None = None
    retransform: bool = False
    again: bool = False  # include dead letters that were redriven before
    state: RedriveState = "running"
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Redriven:
    """Rows of a dead letter file that a batch took; `sequence` numbers the batches that took rows of it, from 0."""

    file: str
    sequence: int
    redrive_id: str
    batch_id: str
    rows: str  # made by `eventbridge.model.rowset.encode`
    count: int


class ReplayPart(Struct, frozen=True, omit_defaults=True):
    """The part of a replay for one pass over the archive: the rules of one runner or, with `target`, one rule's target.

    `rule_set` is the frozen rule set that routes the events; if it is empty, each archived batch is routed by the rule
    set it was pinned to. If `alone`, only the archive of `runner` is read. Otherwise, the archives of other runners are
    read too, for events that its own archive lacks.
    """

    runner: str
    rule_set: str = ""
    rule: str = ""
    target: str = ""
    alone: bool = True


class ReplayPosition(Struct, frozen=True, omit_defaults=True):
    """The position of a replay: its part, the archive file and row, and when that file's batch was planned."""

    part: int = 0
    file: str = ""
    row: int = 0
    at: str = ""  # ISO 8601: when the file's batch was planned


@dataclass(frozen=True)
class Replay:
    """A request to redeliver archived events, carried out by one batch after the other.

    `run` names the requester. A second request with the same `run` is the same replay. Its events are those of batches
    planned from `since` (included) to `until` (excluded) and committed before `started_at`. `selection` is JSON. `rate`
    is in deliveries per second, or None if unlimited; no further batch is planned before `next_at`. `sequence` counts
    the moves of `position`.
    """

    replay_id: str
    run: str
    bus: str
    since: datetime
    until: datetime
    selection: Mapping[str, Any]
    parts: tuple[ReplayPart, ...]
    started_at: datetime
    next_at: datetime
    rate: float | None = None
    new_ids: bool = True
    skip_delivered: bool = False
    state: ReplayState = "running"
    ended_at: datetime | None = None
    sequence: int = 0
    position: ReplayPosition = field(default_factory=ReplayPosition)


@dataclass(frozen=True)
class Replayed:
    """Rows `first_row` to `end_row` (excluded) of an archive file that a replay searched for one of its parts.

    `rows`, encoded by `eventbridge.model.rowset.encode`, are the rows that a batch took. If there are none, there is no
    batch.
    """

    replay_id: str
    sequence: int
    file: str
    part: int
    first_row: int
    end_row: int
    rows: str
    count: int
    batch_id: str | None = None


@dataclass(frozen=True)
class ArchiveFile:
    """A file of the archive, the runner's batch that landed it, and the rule set to which the batch is pinned.

    The file holds the events of `partition` at the offsets `start` (included) to `end` (excluded).
    """

    path: str
    rows: int
    batch_id: str
    runner: str
    rule_set: str
    planned_at: datetime
    partition: Partition
    start: int
    end: int
