"""The index of event ids: a file of it, and where it says that a message with an id may lie."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True)
class IndexFile:
    """A file of the index: of batches planned on `day`, by its beginning in UTC, so many `rows`."""

    path: str
    day: datetime
    rows: int


class IndexedFile(NamedTuple):
    """An archive file that the index speaks of, and its batch."""

    batch_id: str
    path: str


@dataclass(frozen=True)
class ArchivedBatches:
    """Normal batches of a time: how many, how many of them without their archive, and when first and last were."""

    batches: int
    pruned: int
    oldest: datetime | None
    newest: datetime | None
