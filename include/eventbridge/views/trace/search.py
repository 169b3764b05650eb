"""Finds the messages with an id in the archive: valid events, duplicates, and malformed messages with the id.

The index of event ids says which files of a day may have it. Batches that are not indexed, those of the last hour and
of days whose index is lost, are searched completely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow.compute as pc

from eventbridge.errors import NotFoundError, StoreError, StoreFileMissing
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.storage import IndexedFile, is_kept
from eventbridge.model.why import Looked
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import one_text
from eventbridge.store.event_index import claimed_ids, look_up
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.plain_rows import plain_rows
from eventbridge.store.schemas import BUFFER

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Wanted:
    """The subject of a search: an id, in batches planned from `since` to `until`, of one bus ("": of all)."""

    event_id: str
    since: datetime
    until: datetime
    bus: str = ""

    def has(self, batch: Batch) -> bool:
        """Return whether a batch is searched."""
        return batch.kind == "normal" and self.bus in ("", batch.bus) and self.since <= batch.planned_at < self.until


@dataclass(frozen=True)
class Found:
    """A message that has, or claims, the id: its batch and file, and its columns of schema BUFFER."""

    batch: Batch
    file: str
    row: int
    record: dict[str, Any]


@dataclass
class Search:
    """Searches index and archive; afterwards it reports what it searched, and what it could not read."""

    runtime: Runtime
    wanted: Wanted
    files: int = 0
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def run(self) -> list[Found]:
        """Return the messages in the archive, in the order in which their batches were planned."""
        # First: a batch that is indexed meanwhile is then in both, never in neither.
        unindexed = self.runtime.ledger.unindexed_batches(self.wanted.since, self.wanted.until)
        batches, paths = self._indexed()
        for each in unindexed:
            batches[each.batch_id] = each
            paths.pop(each.batch_id, None)  # all of it is searched
        chosen = sorted((each for each in batches.values() if self.wanted.has(each)), key=_in_time)
        return [found for batch in chosen for found in self.of_batch(batch, paths.get(batch.batch_id))]

    def looked(self) -> Looked:
        """Return what was searched."""
        of_time = self.runtime.ledger.archived_batches(self.wanted.since, self.wanted.until, self.wanted.bus)
        return Looked(of_time.batches, of_time.pruned, self.files, of_time.oldest, of_time.newest)

    def of_batch(self, batch: Batch, paths: set[str] | None = None) -> Iterator[Found]:
        """Yield the messages of one batch with the id, in some of its files or in all."""
        if not is_kept(batch.kept, "archive"):
            self._tell_pruned(batch)
            return
        for file in self.runtime.ledger.files(batch.batch_id, "buffer"):
            if file.path is None or (paths is not None and file.path not in paths):
                continue
            try:
                yield from self._of_file(batch, file, file.path)
            except StoreFileMissing as error:
                self._tell_missing(batch, error)
            except StoreError as error:
                self.unreadable.append(f"batch {batch.batch_id}: {error}")

    def _indexed(self) -> tuple[dict[str, Batch], dict[str, set[str]]]:
        """Return the batches of the index, with the files that may have the id; without files: all of them."""
        batches: dict[str, Batch] = {}
        paths: dict[str, set[str]] = {}
        first = _day_of(self.wanted.since)
        for day, group in groupby(self.runtime.ledger.index_files(first, self.wanted.until), key=lambda each: each.day):
            found: list[IndexedFile] = []
            try:
                for file in group:
                    found += look_up(self.runtime.store, file.path, self.wanted.event_id)
            except StoreError as error:
                self._without_index(day, error, batches)
                continue
            for each in found:
                try:
                    batches[each.batch_id] = self.runtime.ledger.batch(each.batch_id)
                except NotFoundError:  # retention removed its row
                    continue
                paths.setdefault(each.batch_id, set()).add(each.path)
        return batches, paths

    def _without_index(self, day: datetime, error: StoreError, batches: dict[str, Batch]) -> None:
        """Search a day whose index cannot be read; maintenance has just joined it, or it is lost."""
        found = self.runtime.ledger.batches_between(day, day + _DAY)
        batches |= {each.batch_id: each for each in found if is_kept(each.kept, "archive")}
        self.notes.append(
            f"the index of {day:%Y-%m-%d} cannot be read, so that day was looked through; "
            f"`eventbridge maintain` makes it again. {error}"
        )

    def _of_file(self, batch: Batch, file: BatchFile, path: str) -> Iterator[Found]:
        self.files += 1
        table = read_table(self.runtime.store, path, ["event_id"])
        found = pc.indices_nonzero(pc.is_in(table["event_id"], value_set=one_text(self.wanted.event_id))).to_pylist()
        if not isinstance(file.detail, LandedRange) or file.detail.malformed:
            claiming = (row for row, each in claimed_ids(self.runtime.store, path) if each == self.wanted.event_id)
            found = sorted({*found, *claiming})
        if found:
            records = plain_rows(read_rows(self.runtime.store, path, rowset.encode(found), BUFFER.names))
            for row, record in zip(found, records, strict=True):
                yield Found(batch, path, row, record)

    def _tell_pruned(self, batch: Batch) -> None:
        self.notes.append(
            f"batch {batch.batch_id} of bus {batch.bus}, planned at {batch.planned_at:%Y-%m-%d %H:%M:%S} (UTC), landed "
            "a message with this id; its archive is past its retention and was removed"
        )

    def _tell_missing(self, batch: Batch, error: StoreFileMissing) -> None:
        """Record that a file is missing, unless retention removed it meanwhile."""
        try:
            gone = not is_kept(self.runtime.ledger.batch(batch.batch_id).kept, "archive")
        except NotFoundError:
            gone = True
        if not gone:
            self.unreadable.append(f"batch {batch.batch_id}: {error}")


def _in_time(batch: Batch) -> tuple[datetime, str]:
    return batch.planned_at, batch.batch_id


def _day_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
