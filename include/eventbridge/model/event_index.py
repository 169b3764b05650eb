"""The index of event ids: its files, and the archive files in which a message with an id may lie."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


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
    """Normal batches of a period: their number, the number without an archive, and when the first and last were."""

    batches: int
    pruned: int
    oldest: datetime | None
    newest: datetime | None
