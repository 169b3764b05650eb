"""Finds the messages that have an event id, in the archive and on the buses, and the event that a delivery id is for.

A message in the archive is a valid event, a duplicate, or a malformed message from which the id can be read. The index
of event ids lists those files of a day that may contain an id. `maintain` adds batches to it after their commit. For a
batch that is not in the index, and for each batch of a day whose index cannot be read, all files are searched. Delivery
ids have no index, so only the newest delivery files are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import EventBridgeError, NotFoundError, StoreError, StoreFileMissing
from eventbridge.event.ids import claimed_id, delivery_id_text
from eventbridge.event.json_document import write_document
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.model.storage import IndexedFile, is_kept
from eventbridge.model.why import BeforeStart, EventPosition, RunnerStart, SearchExtent
from eventbridge.processes import check_cancelled
from eventbridge.rules import Bus
from eventbridge.runtime.batch_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import day_of
from eventbridge.runtime.visibility import visibility_of
from eventbridge.sources.protocol import LogSource
from eventbridge.store.columns import flags_of, one_text, plain_rows
from eventbridge.store.event_index import claimed_ids, look_up
from eventbridge.store.parquet import parts_of, read_rows, read_table
from eventbridge.store.schemas import BUFFER

_DAY = timedelta(days=1)

#: The maximum number of a partition's newest messages that are read, so that a search does not read a backlog of days.
_MAX_READ = 20_000

#: The maximum number of archived messages that a search returns, as any publisher can give many events the same id.
MAX_MESSAGES = 50

#: The maximum number of delivery files that one search reads. Reading them takes two seconds on a local disk.
MAX_FILES = 2_000
_DELIVERY_VERSION = 8


@dataclass(frozen=True)
class IdQuery:
    """A search for an id in batches planned from `since` to before `until`, on one bus or, if `bus` is "", on all."""

    event_id: str
    since: datetime
    until: datetime
    bus: str = ""

    def covers(self, batch: Batch) -> bool:
        """Return whether a batch took its events from the bus of this search, and was planned in its time range."""
        return batch.kind == "normal" and self.bus in ("", batch.bus) and self.since <= batch.planned_at < self.until


@dataclass(frozen=True)
class FoundMessage:
    """An archived message with the id: the batch that landed it, its file and row, and its columns of the BUFFER
    schema."""

    batch: Batch
    file: str
    row: int
    record: dict[str, Any]


@dataclass
class ArchiveSearch:
    """Searches the index and the archive, and records what was read, what was left out, and what is unreadable."""

    runtime: Runtime
    wanted: IdQuery
    files: int = 0
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def run(self) -> list[FoundMessage]:
        """Return the first MAX_MESSAGES messages with the id, in the order in which their batches were planned."""
        # Read this list before the index: a batch that is indexed in between is then found twice rather than missed.
        unindexed = self.runtime.ledger.event_index.unindexed(self.wanted.since, self.wanted.until)
        batches, paths = self._indexed()
        for each in unindexed:
            batches[each.batch_id] = each
            paths.pop(each.batch_id, None)  # search all its files
        # Skip the batches of invisible buses here, because a note would name them.
        visibility = visibility_of(self.runtime)
        chosen = sorted(
            (each for each in batches.values() if self.wanted.covers(each) and visibility.bus(each.bus)),
            key=_planning_order,
        )
        messages = (found for batch in chosen for found in self.batch_messages(batch, paths.get(batch.batch_id)))
        found = list(islice(messages, MAX_MESSAGES))
        if next(messages, None) is not None:
            self.notes.append(
                f"more than {MAX_MESSAGES} archived messages have this id, and only the first {MAX_MESSAGES} are "
                "shown. Choose another time range to see the others"
            )
        return found

    def extent(self) -> SearchExtent:
        """Return which batches the search covered, and how many files it has read so far."""
        visible = visibility_of(self.runtime).buses
        buses = [self.wanted.bus] if visible is None or self.wanted.bus else sorted(visible)
        summaries = [self.runtime.ledger.archive.summary(self.wanted.since, self.wanted.until, each) for each in buses]
        return SearchExtent(
            sum(each.batches for each in summaries),
            sum(each.pruned for each in summaries),
            self.files,
            min((each.oldest for each in summaries if each.oldest is not None), default=None),
            max((each.newest for each in summaries if each.newest is not None), default=None),
        )

    def batch_messages(self, batch: Batch, paths: set[str] | None = None) -> Iterator[FoundMessage]:
        """Yield the messages with the id in a batch's archive files or, if `paths` is given, in those of them only."""
        if not is_kept(batch.kept, "archive"):
            self._note_pruned(batch)
            return
        for file in self.runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
            if file.path is None or (paths is not None and file.path not in paths):
                continue
            try:
                yield from self._file_messages(batch, file, file.path)
            except StoreFileMissing as error:
                self._note_missing(batch, error)
            except StoreError as error:
                self.unreadable.append(f"batch {batch.batch_id}: {error}")

    def _indexed(self) -> tuple[dict[str, Batch], dict[str, set[str]]]:
        """Return the batches in which the index finds the id, and the paths of their files that may contain it.

        The batches of a day whose index cannot be read are also returned, but without paths: any of their files may
        contain the id.
        """
        batches: dict[str, Batch] = {}
        paths: dict[str, set[str]] = {}
        first = day_of(self.wanted.since)
        for day, group in groupby(
            self.runtime.ledger.event_index.files(first, self.wanted.until), key=lambda each: each.day
        ):
            found: list[IndexedFile] = []
            try:
                for file in group:
                    found += look_up(self.runtime.store, file.path, self.wanted.event_id)
            except StoreError as error:
                self._search_without_index(day, error, batches)
                continue
            for each in found:
                try:
                    batches[each.batch_id] = self.runtime.ledger.batches.get(each.batch_id)
                except NotFoundError:  # `maintain` has deleted the batch, which is past its retention
                    continue
                paths.setdefault(each.batch_id, set()).add(each.path)
        return batches, paths

    def _search_without_index(self, day: datetime, error: StoreError, batches: dict[str, Batch]) -> None:
        """Add to `batches` those of a day whose index cannot be read, because `maintain` just merged it or it is lost.

        Batches without an archive are not added.
        """
        found = self.runtime.ledger.batches.list_planned_between(day, day + _DAY)
        batches |= {each.batch_id: each for each in found if is_kept(each.kept, "archive")}
        self.notes.append(
            f"the index of {day:%Y-%m-%d} cannot be read, so all batches of that day were searched. "
            f"`eventbridge maintain` rebuilds the index. {error}"
        )

    def _file_messages(self, batch: Batch, file: BatchFile, path: str) -> Iterator[FoundMessage]:
        self.files += 1
        table = read_table(self.runtime.store, path, ["event_id"])
        rows = np.flatnonzero(flags_of(pc.is_in(table["event_id"], value_set=one_text(self.wanted.event_id))))
        if not isinstance(file.detail, LandedRange) or file.detail.malformed:
            claiming = [row for row, each in claimed_ids(self.runtime.store, path) if each == self.wanted.event_id]
            rows = np.union1d(rows, np.array(claiming, np.int64))
        if len(rows):
            for numbers, some in parts_of(self.runtime.store, path, BUFFER.names, rows):
                for row, record in zip(numbers.tolist(), plain_rows(some), strict=True):
                    yield FoundMessage(batch, path, row, record)

    def _note_pruned(self, batch: Batch) -> None:
        self.notes.append(
            f"batch {batch.batch_id} of bus {batch.bus}, planned at {batch.planned_at:%Y-%m-%d %H:%M:%S} (UTC), landed "
            "a message with this id, but the archive of the batch is past its retention and was removed"
        )

    def _note_missing(self, batch: Batch, error: StoreFileMissing) -> None:
        """Record that a file is missing, unless `maintain` removed the batch's archive while the search was running."""
        try:
            removed = not is_kept(self.runtime.ledger.batches.get(batch.batch_id).kept, "archive")
        except NotFoundError:
            removed = True
        if not removed:
            self.unreadable.append(f"batch {batch.batch_id}: {error}")


def _planning_order(batch: Batch) -> tuple[datetime, str]:
    return batch.planned_at, batch.batch_id


def find_on_buses(runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]) -> Iterator[EventPosition]:
    """Yield the positions of the messages with an id that some runner of their bus has not committed.

    Adds a note for each bus, or part of a partition, that was not searched.
    """
    for bus in buses:
        try:
            with closing(runtime.open_source(bus)) as source:
                yield from _search_bus(runtime, event_id, bus, source, notes)
        except EventBridgeError as error:
            check_cancelled()  # the error may be that of a cancelled search, and is then no fault of the bus
            notes.append(f"bus {bus.name} was not searched: {error}")


def messages_before_start(
    runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]
) -> Iterator[BeforeStart]:
    """Yield the messages with an id that are older than the first message of every runner of their bus.

    Adds a note for each bus, or part of a partition, that was not searched.
    """
    for bus in buses:
        try:
            starts = runtime.ledger.batches.first_offsets(bus.name)
            with closing(runtime.open_source(bus)) as source:
                for partition, runners in starts.items():
                    end = min(runners.values())
                    begins = tuple(RunnerStart(name, offset) for name, offset in sorted(runners.items()))
                    for position in _search_partition(
                        event_id, bus, source, partition, source.earliest(partition), end, notes
                    ):
                        yield BeforeStart(position, begins)
        except EventBridgeError as error:
            check_cancelled()  # the error may be that of a cancelled search, and is then no fault of the bus
            notes.append(f"bus {bus.name} was not searched: {error}")


def _search_bus(
    runtime: Runtime, event_id: str, bus: Bus, source: LogSource, notes: list[str]
) -> Iterator[EventPosition]:
    committed: dict[Partition, int] = {}
    for each in runtime.ledger.offsets.find():
        if each.bus == bus.name:
            committed[each.partition] = min(each.offset, committed.get(each.partition, each.offset))
    for partition, end in source.ends().items():
        first = max(committed.get(partition, 0), source.earliest(partition))
        yield from _search_partition(event_id, bus, source, partition, first, end, notes)


def _search_partition(
    event_id: str, bus: Bus, source: LogSource, partition: Partition, first: int, end: int, notes: list[str]
) -> Iterator[EventPosition]:
    """Yield the positions of messages with an id among the newest _MAX_READ offsets of a partition's range."""
    written = write_document(event_id).encode("utf-8", "surrogatepass")
    start = max(first, end - _MAX_READ)
    if first < start:
        name = "/".join(str(part) for part in partition if part != "")
        notes.append(
            f"bus {bus.name}, {name}: the {start - first:,} messages from offset {first} to {start - 1} were not "
            f"searched, only the {_MAX_READ:,} from offset {start} to {end - 1}"
        )
    for block in source.read(partition, start, end) if start < end else ():
        check_cancelled()
        for offset, body in zip(block["offset"].to_pylist(), block["body"].to_pylist(), strict=True):
            # Parse a body only if it contains the id as written here, or an escape with which the id may be written.
            if body and (written in body or b"\\" in body) and claimed_id(body) == event_id:
                yield EventPosition(bus.name, partition.topic, partition.broker, partition.partition_id, offset)


@dataclass(frozen=True)
class DeliverySearch:
    """The result of a search for a delivery.

    `event_id`, `rule` and `target` are those of the delivery, or None if it was not found. `oldest` is when the oldest
    searched batch was planned, or None if no batch was searched. `unreadable` lists the errors of the files that could
    not be read.
    """

    event_id: str | None
    rule: str | None
    target: str | None
    oldest: datetime | None
    unreadable: tuple[str, ...]


def delivery_bytes(text: str) -> bytes | None:
    """Return the bytes of a delivery id, or None if the text is not a delivery id as targets receive it."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found.bytes if found.version == _DELIVERY_VERSION and text.lower() == str(found) else None


def find_delivery(runtime: Runtime, delivery: bytes, since: datetime, until: datetime) -> DeliverySearch:
    """Search the newest MAX_FILES delivery files, newest first, for a delivery of a batch planned in a time range.

    `since` is included, `until` is excluded.
    """
    wanted = pa.scalar(delivery, pa.binary(16))
    oldest: datetime | None = None
    unreadable: list[str] = []
    for file in islice(newest_files(runtime, "delivery", "all"), MAX_FILES):
        if file.planned_at < since:
            break
        if file.planned_at >= until:
            continue
        oldest = file.planned_at
        try:
            row = pc.index(read_table(runtime.store, file.path, ["delivery_id"])["delivery_id"], wanted).as_py()
            if row < 0:
                continue
            found = read_rows(
                runtime.store, file.path, rowset.encode([row]), ["event_id", "rule", "target"]
            ).to_pylist()
        except StoreError as error:
            unreadable.append(f"batch {file.batch_id}: {error}")
            continue
        return DeliverySearch(**found[0], oldest=oldest, unreadable=tuple(unreadable))
    return DeliverySearch(None, None, None, oldest, tuple(unreadable))


def delivery_note(delivery: bytes, found: DeliverySearch) -> str:
    """Return a note for a user who asked for the id of a delivery. It names the event and the target of the
    delivery."""
    return (
        f"{delivery_id_text(delivery)} is the id of a delivery: of event {found.event_id} to the target "
        f"{found.rule}/{found.target}"
    )
