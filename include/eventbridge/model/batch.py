"""Defines a batch, its offset ranges, and the files that its stages published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eventbridge.model.file_detail import FileDetail
from eventbridge.model.partition import LastMessage, Partition
from eventbridge.model.storage import Kept

BatchKind = Literal["normal", "retry", "replay", "redrive"]
BatchState = Literal["open", "planned", "buffered", "routed", "settling", "committed"]
FileKind = Literal["buffer", "delivery", "outcome", "settlement", "dead_letter"]


@dataclass(frozen=True)
class Range:
    """Offsets `start` (included) to `end` (excluded) of one partition."""

    partition: Partition
    start: int
    end: int


@dataclass(frozen=True)
class ReadRange(Range):
    """A range and the last message that was read from it; `last_message` is None if no message was read or recorded."""

    last_message: LastMessage | None = None


@dataclass(frozen=True)
class Batch:
    """The unit of work of a run or a streaming task; `bus` is empty if the batch routes no events of a bus."""

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
    bus_committed_at: datetime | None = None  # None until the bus has accepted the offsets of the batch
    kept: Kept = "all"  # the records that retention keeps; the removal of all others may have begun
    remaining: Kept = "all"  # the records that still exist; equal to `kept` once the removal is complete
    is_full: bool = False  # whether the bus had more events than the batch was allowed to take
    in_index: Literal["no", "yes"] = "no"  # whether the index of event ids contains the events of the batch
    follows: str | None = None  # the batch to commit first; until then, only the streaming task may change this one

    @property
    def has_route_stage(self) -> bool:
        """Whether the batch has a route stage.

        Such a batch accounts for all rows of its delivery files. Any other batch accounts for the rows in its chunks.
        """
        return self.kind not in ("retry", "redrive") or self.bus != ""


@dataclass(frozen=True)
class BatchFile:
    """The record of a file that a stage published for a batch. Only the first record with a key counts.

    `path` is None if there was nothing to write. `detail` is recorded by buffer, route or a streaming task.
    """

    batch_id: str
    kind: FileKind
    key: str
    path: str | None
    rows: int
    detail: FileDetail = None


@dataclass(frozen=True)
class FilePosition:
    """A file of a batch, and its position among the files of all batches."""

    planned_at: datetime
    batch_id: str
    key: str
    path: str
