"""Searches the archive for events, a few files at a time, the newest event of a batch first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError, UserError
from eventbridge.event.json_document import parse_document
from eventbridge.model import row_vectors
from eventbridge.model.batch import FilePosition
from eventbridge.model.cursor import Cursor, read_cursor, write_cursor
from eventbridge.processes import check_cancelled
from eventbridge.rules.find import find_bus
from eventbridge.runtime.batch_files import cursor_at, files_from
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import Visibility, visibility_of
from eventbridge.store.columns import flags_of, numbers_of
from eventbridge.store.parquet import parts_of, read_rows, read_table
from eventbridge.views.event_condition import EventCondition
from eventbridge.views.event_status import MAX_LISTED_DELIVERIES, STATUSES, EventStatus, EventStatuses, check_status

#: The maximum number of archive files that a page reads, and the number of events after which it reads no more files.
PAGE_FILES, PAGE_EVENTS = 50, 100_000
#: The maximum number of events whose bodies a page reads for a condition, and the time after which it reads no more.
PAGE_BODIES: Final = 20_000
PAGE_SECONDS: Final = 2.0

_COLUMNS = ["topic", "broker", "partition_id", "offset", "published_at", "arrived_at", "event_id", "source", "type"]
#: The number of events whose bodies are read at once, in the order in which they are listed.
_BODIES_AT_ONCE = 2_000
Numbers = npt.NDArray[np.int64]


class _WithSubject(msgspec.Struct):
    subject: object = None


_SUBJECT = msgspec.json.Decoder(_WithSubject)


@dataclass(frozen=True)
class EventQuery:
    """A search for valid events that meet all given conditions, in batches planned from `since` to before `until`.

    `status` is one of STATUSES, over the deliveries of `rule` if that is given. A `rule` without a status finds the
    events that have deliveries of it.
    """

    bus: str | None = None
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    status: str | None = None
    rule: str | None = None
    condition: EventCondition | None = None


@dataclass(frozen=True)
class FoundEvent:
    """An event of the archive: its attributes and the batch that landed it."""

    event_id: str
    type: str
    source: str
    published_at: datetime
    arrived_at: datetime
    batch_id: str
    topic: str
    broker: str
    partition_id: int
    offset: int


class ArchivePlace(NamedTuple):
    """The archive file and row of an event, and its batch."""

    batch_id: str
    path: str
    row: int


@dataclass(frozen=True)
class EventPage:
    """A page of events; `cursor` leads to the next page, and is None on the last page.

    `unreadable` has the errors of files that could not be read.
    """

    events: tuple[FoundEvent, ...]
    cursor: str | None
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class PlacedPage(EventPage):
    """A page of events with the place of each in the archive, and the statuses that the search has read."""

    places: tuple[ArchivePlace, ...]
    statuses: EventStatuses


def event_page(runtime: Runtime, query: EventQuery, limit: int, after: str | None = None) -> EventPage:
    """Return at most `limit` events after a cursor, the newest batch first, and in a batch the newest event first.

    A page ends after PAGE_FILES files, and after the files with which it has read PAGE_EVENTS events, so a page that
    has a cursor may be short or empty. Raises NotFoundError for an unknown bus, UserError for an invalid cursor or
    status, and UserError if a caller who is limited to owners names no bus.
    """
    found = placed_page(runtime, query, limit, after)
    return EventPage(found.events, found.cursor, found.unreadable)


def placed_page(runtime: Runtime, query: EventQuery, limit: int, after: str | None = None) -> PlacedPage:
    """Return the page of `event_page` with the place of each event; raises the same errors."""
    _require_visible_bus(runtime, query.bus)
    check_status(query.status)
    search = _Search(runtime, query, limit, EventStatuses(runtime))
    cursor = read_cursor(after) if after else None
    files = 0
    for group in _groups(runtime, query, cursor):
        first = group[0]
        if query.since is not None and first.planned_at < query.since:
            break  # all further files are older
        if files and (files + len(group) > PAGE_FILES or search.is_exhausted):
            return search.page(cursor_at(first))
        files += len(group)
        if query.until is not None and first.planned_at >= query.until:
            continue
        here = cursor if cursor is not None and cursor.batch_id == first.batch_id else None
        following = search.read(group, here)
        if following is not None:
            return search.page(following)
    return search.page(None)


def find_events(runtime: Runtime, query: EventQuery, limit: int) -> EventPage:
    """Return at most `limit` events, starting with the newest batch, from as many files as it takes.

    Raises the same errors as `event_page`.
    """
    page = event_page(runtime, query, limit)
    events, unreadable = list(page.events), list(page.unreadable)
    while page.cursor is not None and len(events) < limit:
        page = event_page(runtime, query, limit - len(events), page.cursor)
        events += page.events
        unreadable += page.unreadable
    return EventPage(tuple(events), page.cursor, tuple(unreadable))


def statuses_of(page: PlacedPage) -> list[EventStatus | None]:
    """Return the status of each event of a page; None for those after MAX_LISTED_DELIVERIES deliveries were read."""
    statuses, remaining = page.statuses, MAX_LISTED_DELIVERIES
    found: list[EventStatus | None] = []
    for batch_id, of_batch in groupby(page.places, key=lambda each: each.batch_id):
        wanted = list(of_batch)
        remaining -= statuses.count(batch_id)
        if remaining < 0:
            found += [None for _ in wanted]
            continue
        by_file: dict[str, list[int]] = {}
        for each in wanted:
            by_file.setdefault(each.path, []).append(each.row)
        known = {
            (path, row): status
            for path, rows in by_file.items()
            for row, status in zip(rows, statuses.status_of_rows(batch_id, path, rows), strict=True)
        }
        found += [known[each.path, each.row] for each in wanted]
    return found


def bodies_of(runtime: Runtime, places: Sequence[ArchivePlace]) -> dict[ArchivePlace, bytes]:
    """Return the bodies of the events at some places; those in files that cannot be read are left out."""
    found: dict[ArchivePlace, bytes] = {}
    for (batch_id, path), of_file in groupby(sorted(places), key=lambda each: each[:2]):
        try:
            for numbers, table in parts_of(runtime.store, path, ["body"], np.array([each.row for each in of_file])):
                for row, body in zip(numbers.tolist(), table["body"].to_pylist(), strict=True):
                    found[ArchivePlace(batch_id, path, row)] = body
        except StoreError:
            continue
    return found


def _require_visible_bus(runtime: Runtime, bus: str | None) -> None:
    if bus is not None:
        find_bus(runtime.rule_set(), bus)
    if not visibility_of(runtime).bus(bus):
        raise UserError("Name a bus: you see the events of your own buses and of buses that your rules use")


def _groups(runtime: Runtime, query: EventQuery, cursor: Cursor | None) -> Iterator[list[FilePosition]]:
    """Yield the files whose events are ordered together: those of a batch, at most PAGE_FILES at once.

    The first group contains the file of the cursor.
    """
    if cursor is not None:
        keys = [each.key for each in runtime.ledger.files.list_for_batch(cursor.batch_id, "buffer") if each.path]
        if cursor.key in keys:
            first = keys[keys.index(cursor.key) // PAGE_FILES * PAGE_FILES]
            cursor = Cursor(cursor.planned_at, cursor.batch_id, first)
    # Only normal batches: a replay has files with copies of the events that it sends again.
    archive = files_from(runtime, "buffer", "archive", cursor, bus=query.bus, batch_kind="normal")
    for _, files in groupby(archive, key=lambda each: each.batch_id):
        while group := list(islice(files, PAGE_FILES)):
            yield group


class _Listed(NamedTuple):
    """Events of a group of files: file number, row and time of publication of each."""

    file: Numbers
    row: Numbers
    published: Numbers


class _MatchedEvents:
    """Finds the archived events that visible rules have matched, from the deliveries of their batches."""

    def __init__(self, runtime: Runtime, visibility: Visibility) -> None:
        self._runtime = runtime
        self._rules = pa.array(sorted(visibility.rules or ()), pa.string())
        self._batch = ""
        self._known: dict[str, list[npt.NDArray[np.int64]]] = {}

    def rows(self, batch_id: str, path: str) -> npt.NDArray[np.int64]:
        """Return the rows of a batch's archive file whose events have a delivery of a visible rule."""
        if batch_id != self._batch:  # the files of a batch follow each other
            self._batch, self._known = batch_id, {}
            for file in self._runtime.ledger.files.list_for_batch(batch_id, "delivery"):
                if file.path is not None:
                    self._add(file.path)
        return np.unique(np.concatenate([np.empty(0, np.int64), *self._known.get(path, ())]))

    def _add(self, path: str) -> None:
        table = read_table(self._runtime.store, path, ["rule", "event_file", "event_row"])
        table = table.filter(pc.is_in(table["rule"], value_set=self._rules))
        for name in pc.unique(table["event_file"]).to_pylist():
            rows = table.filter(pc.equal(table["event_file"], name))["event_row"]
            self._known.setdefault(name, []).append(rows.to_numpy().astype(np.int64))


class _Search:
    """Collects the events of one page, group by group."""

    def __init__(self, runtime: Runtime, query: EventQuery, limit: int, statuses: EventStatuses) -> None:
        self._runtime = runtime
        self._query = query
        self._limit = limit
        self._statuses = statuses
        visibility = visibility_of(runtime)
        self._matched = _MatchedEvents(runtime, visibility) if query.bus in visibility.shared else None
        self._seen = self._bodies = 0
        self._ends_at = time.monotonic() + PAGE_SECONDS
        self._places: list[ArchivePlace] = []
        self._last: Cursor | None = None
        self._unreadable: list[str] = []

    @property
    def is_exhausted(self) -> bool:
        """Whether the page has read as much as one page may."""
        return self._seen >= PAGE_EVENTS or self._are_bodies_exhausted

    @property
    def _are_bodies_exhausted(self) -> bool:
        return self._bodies >= PAGE_BODIES or (self._bodies > 0 and time.monotonic() > self._ends_at)

    def page(self, cursor: Cursor | None) -> PlacedPage:
        """Return the page that ends at a cursor."""
        records: dict[ArchivePlace, dict[str, Any]] = {}
        for (batch_id, path), places in groupby(sorted(self._places), key=lambda each: each[:2]):
            rows = [each.row for each in places]
            try:
                table = read_rows(self._runtime.store, path, row_vectors.encode(np.array(rows, np.int64)), _COLUMNS)
            except StoreError as error:
                self._unreadable.append(str(error))
                continue
            records |= {
                ArchivePlace(batch_id, path, row): record for row, record in zip(rows, table.to_pylist(), strict=True)
            }
        read = tuple(each for each in self._places if each in records)
        events = tuple(FoundEvent(batch_id=each.batch_id, **records[each]) for each in read)
        unreadable = (*self._unreadable, *self._statuses.unreadable)
        return PlacedPage(events, None if cursor is None else write_cursor(cursor), unreadable, read, self._statuses)

    def read(self, group: Sequence[FilePosition], after: Cursor | None) -> Cursor | None:
        """Add the matching events of a group after a cursor; return the cursor of the next page if this one ends."""
        listed = self._list_events(group, after)
        for start in range(0, len(listed.row), _BODIES_AT_ONCE):
            part = _Listed(*(each[start : start + _BODIES_AT_ONCE] for each in listed))
            for number, row in self._fitting(group, part):
                if len(self._places) == self._limit and self._last is not None:
                    return self._last
                file = group[number]
                self._places.append(ArchivePlace(file.batch_id, file.path, row))
                self._last = cursor_at(file, row)
            if self._are_bodies_exhausted:
                return cursor_at(group[int(part.file[-1])], int(part.row[-1]))
        return None

    def _list_events(self, group: Sequence[FilePosition], after: Cursor | None) -> _Listed:
        """Return the events of a group that meet all conditions but those on bodies, in order, after a cursor."""
        found = []
        position: tuple[int, int, int] | None = None
        for number, file in enumerate(group):
            check_cancelled()
            try:
                rows, published = self._rows(file)
            except StoreError as error:
                self._unreadable.append(str(error))
                continue
            self._seen += len(published)
            if after is not None and after.key == file.key and 0 <= after.row < len(published):
                position = (number, after.row, int(published[after.row]))
            found.append((np.full(len(rows), number, np.int64), rows, published[rows]))
        if not found:
            return _Listed(*(np.zeros(0, np.int64) for _ in range(3)))
        listed = _Listed(*(np.concatenate(each) for each in zip(*found, strict=True)))
        if position is not None:
            listed = _after(listed, *position)
        order = np.lexsort((-listed.row, listed.file, -listed.published))
        return _Listed(*(each[order] for each in listed))

    def _rows(self, file: FilePosition) -> tuple[Numbers, Numbers]:
        """Return the rows of a file that meet the conditions on columns, and the publication time of every row."""
        query = self._query
        wanted = {name: value for name in ("type", "source") if (value := getattr(query, name)) is not None}
        table = read_table(self._runtime.store, file.path, ["status", "published_at", *wanted])
        fits = pc.equal(table["status"], "valid")
        for name, value in wanted.items():
            fits = pc.and_(fits, pc.fill_null(pc.equal(table[name], value), False))
        chosen = flags_of(fits)
        if query.status is not None or query.rule is not None:
            codes = self._statuses.codes(file.batch_id, file.path, table.num_rows, query.rule)
            if query.status is None:
                chosen = chosen & (codes != STATUSES.index("unmatched"))
            else:
                chosen = chosen & (codes == STATUSES.index(query.status))
        rows = np.flatnonzero(chosen).astype(np.int64)
        if self._matched is not None:  # of a shared bus, only events that visible rules have matched are shown
            rows = np.intersect1d(rows, self._matched.rows(file.batch_id, file.path))
        return rows, numbers_of(table["published_at"])

    def _fitting(self, group: Sequence[FilePosition], part: _Listed) -> Iterator[tuple[int, int]]:
        """Yield file number and row of the listed events that meet the conditions on bodies."""
        places = list(zip(part.file.tolist(), part.row.tolist(), strict=True))
        if self._query.subject is None and self._query.condition is None:
            yield from places
            return
        if self._query.condition is not None:
            self._bodies += len(places)
        fitting: set[tuple[int, int]] = set()
        for number in np.unique(part.file).tolist():
            rows = np.sort(part.row[part.file == number])
            try:
                fitting |= {(number, row) for row in self._with_body(group[number].path, rows)}
            except StoreError as error:
                self._unreadable.append(str(error))
        yield from (each for each in places if each in fitting)

    def _with_body(self, path: str, rows: Numbers) -> Iterator[int]:
        """Yield those of the given rows whose event has the subject, and meets the condition, of the search."""
        subject, condition = self._query.subject, self._query.condition
        for numbers, table in parts_of(self._runtime.store, path, ["body"], rows):
            check_cancelled()
            parsed: Sequence[int] = range(table.num_rows)
            if subject is not None:
                # Only a body that contains the subject literally, or an escape, can match. No other body is parsed.
                text = pc.match_substring(table["body"], f'"{subject}"')
                parsed = np.flatnonzero(flags_of(pc.or_(text, pc.match_substring(table["body"], "\\")))).tolist()
            for number in parsed:
                body = table["body"][number].as_py()
                if subject is not None and _subject(body) != subject:
                    continue
                if condition is None or condition.meets(body):
                    yield int(numbers[number])


def _after(listed: _Listed, number: int, row: int, published: int) -> _Listed:
    """Return the events that follow the one with this file number, row and time, in the order of a page."""
    same_file = (listed.file > number) | ((listed.file == number) & (listed.row < row))
    follows = (listed.published < published) | ((listed.published == published) & same_file)
    return _Listed(*(each[follows] for each in listed))


def _subject(body: bytes) -> object:
    try:
        return _SUBJECT.decode(body).subject
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # An event may contain a lone surrogate, which msgspec rejects.
        return parse_document(body).get("subject")
