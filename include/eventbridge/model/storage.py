"""Defines records about the contents of the store: kept records of a batch, sizes by area, the inbox, and the index of
event ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

STEPS: Final[tuple[Kept, ...]] = ("all", "archive", "dead_letters", "manifest", "nothing")

#: The sweeps that search a day of the store for files that no record names: `lost` runs once their writers must have
#: ended, `expired` once retention has removed the named files. `compacting` and `compacted` name up to which day a
#: compaction has begun and ended; `erasing` and `erased` name when the last erasure began, and when the last that ended
#: did.
SweepName = Literal["lost", "expired", "compacting", "compacted", "erasing", "erased"]

#: The areas that retention removes one at a time, and `other`, which is everything that does not count towards a batch:
#: manifests, rule sets, indexes, files of attempts that died, and files older than the counting.
Area = Literal["deliveries", "archive", "dead_letters", "other"]
#: The area that is removed with each step of `Kept`.
AREAS: Mapping[Kept, Area] = {"all": "deliveries", "archive": "archive", "dead_letters": "dead_letters"}

#: The space that has run out: the free space of the store's disk, or the store's quota.
StopCause = Literal["disk", "quota"]


#: Those records of a batch that are kept. Each value stands for the records that are named here for it and for all
#: later values. `all`: deliveries, outcomes and settlements. `archive`: the landed events of a normal batch.
#: `dead_letters`: the dead letters. `manifest`: the manifest, the records of repairs, and the ledger's row. `nothing`:
#: none; the row is deleted after the files.
Kept = Literal["all", "archive", "dead_letters", "manifest", "nothing"]


def is_kept(kept: Kept, record_kind: Kept) -> bool:
    """Return whether a batch with the records `kept` still has `record_kind`, such as its `dead_letters`."""
    return STEPS.index(kept) <= STEPS.index(record_kind)


@dataclass(frozen=True)
class Need:
    """The records `what` that a batch must not lose, however old it is, and why."""

    what: Kept
    why: str


@dataclass(frozen=True)
class BatchGroup:
    """The runner and the bus of batches with the same kept records; a name is empty if they have none."""

    runner: str
    bus: str


@dataclass(frozen=True)
class BatchPosition:
    """The position of a batch among others in order of planning."""

    planned_at: datetime
    batch_id: str


@dataclass(frozen=True)
class BatchSize:
    """The bytes of a batch in the store, by area."""

    deliveries: int
    archive: int
    dead_letters: int


@dataclass(frozen=True)
class StoredBytes:
    """The bytes of a runner and bus in an area, minus those that retention removed; both names are "" for `other`."""

    runner: str
    bus: str
    area: Area
    size: int


@dataclass(frozen=True)
class StoreQuota:
    """The store's used bytes, its quota, the used bytes at which ingestion resumes, and when these were last
    measured."""

    used: int
    quota: int
    resume: int
    counted_at: datetime | None


@dataclass(frozen=True)
class StoreCount:
    """The size of the store by area, and when all of it was last measured; if never, the size is unknown."""

    sizes: tuple[StoredBytes, ...]
    counted_at: datetime | None

    @property
    def total(self) -> int:
        """The total bytes, at least 0."""
        return max(0, sum(each.size for each in self.sizes))


@dataclass(frozen=True)
class IngestionStop:
    """The reason why ingestion is stopped, so that no runner plans a batch, and the time of the stop."""

    reason: str
    since: datetime
    cause: StopCause


@dataclass(frozen=True)
class InboxFile:
    """A file of the store with messages `start` (included) to `end` (excluded) of a topic, which a queue handed out.

    Unless it is `acknowledged`, the queue may hand the messages out again; `again` counts how many it has handed out
    again.
    """

    bus: str
    topic: str
    start: int
    end: int
    path: str
    again: int
    stored_at: datetime
    acknowledged: bool


@dataclass(frozen=True)
class IndexFile:
    """A file of the index with `rows` rows, for batches planned on the day that begins at `day` (UTC)."""

    path: str
    day: datetime
    rows: int


class IndexedFile(NamedTuple):
    """An archive file to which the index refers, and its batch."""

    batch_id: str
    path: str


@dataclass(frozen=True)
class ArchivedBatches:
    """Normal batches of a period: their number, how many have no archive left, and when the first and last were
    planned."""

    batches: int
    pruned: int
    oldest: datetime | None
    newest: datetime | None
