"""Finds the messages with an id in the archive: valid events, duplicates, and what claims the id and is no event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from eventbridge.errors import NotFoundError, StoreError, StoreFileMissing
from eventbridge.event.claimed_id import claimed_id
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.landed import LandedRange
from eventbridge.model.retention import is_kept
from eventbridge.model.why import Looked
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.schemas import BUFFER


@dataclass(frozen=True)
class Wanted:
    """What is looked for: an id, in batches planned from `since` to `until`, of one bus ("": of all)."""

    event_id: str
    since: datetime
    until: datetime
    bus: str = ""


@dataclass(frozen=True)
class Found:
    """A message that has, or claims, the id: where it was landed, and its columns of schema BUFFER."""

    batch: Batch
    file: str
    row: int
    record: dict[str, Any]


@dataclass
class Search:
    """Goes through the archive; afterwards says how far it looked, and what it could not read."""

    work: Runtime
    wanted: Wanted
    files: int = 0
    pruned: int = 0
    batches: list[Batch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def run(self) -> list[Found]:
        """Return what the archive holds, in the order in which batches were planned."""
        planned = self.work.ledger.batches_between(self.wanted.since, self.wanted.until)
        self.batches = [each for each in planned if each.kind == "normal" and self.wanted.bus in ("", each.bus)]
        return [found for batch in self.batches for found in self.of_batch(batch)]

    def looked(self) -> Looked:
        """Return how far was looked."""
        times = [each.planned_at for each in self.batches]
        return Looked(
            batches=len(self.batches),
            pruned=self.pruned,
            files=self.files,
            oldest=min(times, default=None),
            newest=max(times, default=None),
        )

    def of_batch(self, batch: Batch) -> Iterator[Found]:
        """Yield what one batch has of the id."""
        if not is_kept(batch.kept, "archive"):
            self.pruned += 1
            return
        for file in self.work.ledger.files(batch.batch_id, "buffer"):
            if file.path is None:
                continue
            try:
                yield from self._of_file(batch, file, file.path)
            except StoreFileMissing as error:
                self._tell_missing(batch, error)
            except StoreError as error:
                self.unreadable.append(f"batch {batch.batch_id}: {error}")

    def _of_file(self, batch: Batch, file: BatchFile, path: str) -> Iterator[Found]:
        self.files += 1
        table = read_table(self.work.store, path, ["event_id"])
        found = pc.indices_nonzero(pc.fill_null(pc.equal(table["event_id"], self.wanted.event_id), False)).to_pylist()
        if not isinstance(file.detail, LandedRange) or file.detail.malformed:
            found = sorted({*found, *self._claiming(path)})
        if found:
            records = read_rows(self.work.store, path, rowset.encode(found), BUFFER.names).to_pylist()
            for row, record in zip(found, records, strict=True):
                yield Found(batch, path, row, record)

    def _claiming(self, path: str) -> Sequence[int]:
        """Return the rows of messages that are no events and claim to have the id."""
        table = read_table(self.work.store, path, ["status", "body"])
        rows = pc.indices_nonzero(pc.equal(table["status"], "malformed")).to_pylist()
        bodies = table["body"].take(rows).to_pylist() if rows else []
        return [row for row, body in zip(rows, bodies, strict=True) if claimed_id(body) == self.wanted.event_id]

    def _tell_missing(self, batch: Batch, error: StoreFileMissing) -> None:
        """Note that a file is missing, unless retention took it meanwhile."""
        try:
            gone = not is_kept(self.work.ledger.batch(batch.batch_id).kept, "archive")
        except NotFoundError:
            gone = True
        if not gone:
            self.unreadable.append(f"batch {batch.batch_id}: {error}")
        else:
            self.pruned += 1
