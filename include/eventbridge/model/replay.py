"""A request to deliver archived events again, and what of the archive a batch took up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from eventbridge.model.partition import Partition

#: The header of a replayed delivery that has an id of its own.
REPLAY_ID_HEADER = "eventbridge-replay-id"

ReplayState = Literal["running", "paused", "done", "cancelled"]


class ReplayPart(Struct, frozen=True, omit_defaults=True):
    """What a replay goes through the archive for once: the rules of one runner or, with `target`, one target of a rule.

    `rule_set` is the frozen one that routes it, "": each batch's own, as it was pinned then. `alone`: only the archive
    of `runner` is read; else that of others too, where it holds what the runner's own does not.
    """

    runner: str
    rule_set: str = ""
    rule: str = ""
    target: str = ""
    alone: bool = True


class ReplayPosition(Struct, frozen=True, omit_defaults=True):
    """How far a replay has come: in which part, to which row of which archive file, and that file's place in time."""

    part: int = 0
    file: str = ""
    row: int = 0
    at: str = ""  # ISO 8601: when the file's batch was planned


@dataclass(frozen=True)
class Replay:
    """A request to deliver archived events again, carried out by batches in turn.

    `run` names who asked: to ask again under the same name is to ask for the same replay. Events are those of batches
    planned from `since` (included) to `until` (excluded) and committed before `started_at`. `selection` is JSON.
    `rate` is in deliveries a second, None: as fast as it goes; before `next_at` no further batch is planned.
    `turn` counts the moves of `position`.
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
    turn: int = 0
    position: ReplayPosition = field(default_factory=ReplayPosition)


@dataclass(frozen=True)
class Replayed:
    """Rows `first_row` to `end_row` (excluded) of an archive file that a replay looked through for one of its parts.

    `rows`, made by `eventbridge.model.rowset.encode`, are those that a batch took up; without any there is no batch.
    """

    replay_id: str
    turn: int
    file: str
    part: int
    first_row: int
    end_row: int
    rows: str
    count: int
    batch_id: str | None = None


@dataclass(frozen=True)
class ArchiveFile:
    """A file of the archive: what of it was landed, by which runner's batch, and the rule set that batch is pinned to.

    `start` and `end` are the offsets of `partition` that the file was landed for.
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
