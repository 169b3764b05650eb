"""The contents of the store: the kept records of a batch, sizes by area, the inbox, the index of event ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

STEPS: Final[tuple[Kept, ...]] = ("all", "archive", "dead_letters", "manifest", "nothing")

#: The sweeps that list a day of the store for files that no record names: `lost` once their writers must have ended,
#: `expired` once retention has removed the named files.
SweepName = Literal["lost", "expired"]

#: The areas that retention removes one at a time; `other` is everything that is counted without a batch: manifests,
#: rule sets, indexes, files of attempts that died, and files from before the counting began.
Area = Literal["deliveries", "archive", "dead_letters", "other"]
#: The area that is removed with each step of `Kept`.
AREAS: Mapping[Kept, Area] = {"all": "deliveries", "archive": "archive", "dead_letters": "dead_letters"}

#: The space that is short: the disk of the store, or the store's quota.
StopCause = Literal["disk", "quota"]


#: The records of a batch that are kept, from all to none: each step lacks the records that the step before it names.
#: `all`: deliveries, outcomes and settlements too. `archive`: the landed events of a normal batch. `dead_letters`: the
#: dead letters. `manifest`: the manifest, records of repairs, the ledger's row. `nothing`: the row is deleted after the
#: files.
Kept = Literal["all", "archive", "dead_letters", "manifest", "nothing"]


def is_kept(kept: Kept, record_kind: Kept) -> bool:
    """Return whether a batch with the records `kept` still has `record_kind`, such as its `dead_letters`."""
    return STEPS.index(kept) <= STEPS.index(record_kind)


@dataclass(frozen=True)
class Need:
    """Why a batch must not lose `what`, however old it is."""

    what: Kept
    why: str


@dataclass(frozen=True)
class BatchGroup:
    """Batches of one runner and bus (empty if they have none) with the same kept records."""

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
    """The bytes of a runner and bus in an area, less those that retention removed; both names are "" for `other`."""

    runner: str
    bus: str
    area: Area
    size: int


@dataclass(frozen=True)
class StoreQuota:
    """The used bytes of the store, its quota, the used bytes at which to resume, and the time of the last
    measurement.
    """

    used: int
    quota: int
    resume: int
    counted_at: datetime | None


@dataclass(frozen=True)
class StoreCount:
    """The size of the store by area, and when everything was last measured; without a time, the size is unknown."""

    sizes: tuple[StoredBytes, ...]
    counted_at: datetime | None

    @property
    def total(self) -> int:
        """The total bytes, at least 0."""
        return max(0, sum(each.size for each in self.sizes))


@dataclass(frozen=True)
class IngestionStop:
    """Why no runner plans a batch, and since when."""

    reason: str
    since: datetime
    cause: StopCause


@dataclass(frozen=True)
class InboxFile:
    """One file of the store with messages `start` (included) to `end` (excluded) of a topic, which a queue handed out.

    Unless it is `acknowledged`, the queue may hand the messages out again; `again` counts those that it has.
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
    """A file of the index with `rows` rows, for batches planned on `day` (its beginning in UTC)."""

    path: str
    day: datetime
    rows: int


class IndexedFile(NamedTuple):
    """An archive file to which the index refers, and its batch."""

    batch_id: str
    path: str


@dataclass(frozen=True)
class ArchivedBatches:
    """Normal batches of a period: their number, how many lack an archive, and when the first and last were planned."""

    batches: int
    pruned: int
    oldest: datetime | None
    newest: datetime | None
