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
    """A range with the last message that was read from it; None if the range was a gap or no message was recorded."""

    last_message: LastMessage | None = None


@dataclass(frozen=True)
class Batch:
    """The unit that one DAG run processes; `bus` is empty if the batch routes no event of a bus."""

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
    bus_committed_at: datetime | None = None  # None until the bus has its offsets
    kept: Kept = "all"  # the records that are guaranteed to exist
    cleared: Kept = "all"  # the records that may still exist: more than `kept` while retention removes files
    is_full: bool = False  # it took as many events as it was allowed to
    in_index: Literal["no", "yes"] = "no"  # whether the index of event ids has its events
    follows: str | None = None  # the batch to commit first; until then, only the streaming task may work on this one

    @property
    def routes(self) -> bool:
        """Whether it has the stage route, and so accounts for all its delivery files, not just for those of its
        chunks."""
        return self.kind not in ("retry", "redrive") or self.bus != ""


@dataclass(frozen=True)
class BatchFile:
    """A file that a stage published for a batch under a key; the first record of a key wins.

    `path` is None if a slice had nothing to write. `detail` is recorded by buffer, route or a streaming task.
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
