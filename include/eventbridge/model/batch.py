"""A batch, the offset ranges that it took, and the files that its stages published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eventbridge.model.file_detail import FileDetail
from eventbridge.model.last_message import LastMessage
from eventbridge.model.partition import Partition
from eventbridge.model.retention import Kept

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
    """A range with the last message that was read of it; None: it was a gap, or that was not noted."""

    last_message: LastMessage | None = None


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
    kept: Kept = "all"  # what may be counted on
    cleared: Kept = "all"  # what still exists: more than `kept` while retention removes files
    is_full: bool = False  # it took all that it was allowed: its bus held more
    in_index: Literal["no", "yes"] = "no"  # whether the index of event ids has its events
    follows: str | None = (
        None  # the batch that is to be committed first: until then nobody but its streaming task has this one
    )

    @property
    def routes(self) -> bool:
        """Whether route is one of its stages: it accounts for all its delivery files, else for what its chunks name."""
        return self.kind not in ("retry", "redrive") or self.bus != ""


@dataclass(frozen=True)
class BatchFile:
    """A file that a stage published for a batch under a key; the first recorder of a key wins.

    `path` is None where a slice had nothing to write. `detail` is what buffer, route or a streaming task records of it.
    """

    batch_id: str
    kind: FileKind
    key: str
    path: str | None
    rows: int
    detail: FileDetail = None


@dataclass(frozen=True)
class FilePlace:
    """A file of a batch, and where it stands among those of all batches."""

    planned_at: datetime
    batch_id: str
    key: str
    path: str
