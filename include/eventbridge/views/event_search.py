"""Searches the archive for events by type, source and subject, a few files at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError, UserError
from eventbridge.event.json_document import parse_document
from eventbridge.model import row_vectors
from eventbridge.model.cursor import read_cursor, write_cursor
from eventbridge.rules.find import find_bus
from eventbridge.runtime.batch_files import cursor_at, files_from, rows_after
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import Visibility, visibility_of
from eventbridge.store.columns import flags_of
from eventbridge.store.parquet import parts_of, read_rows, read_table

#: The maximum number of archive files that a page reads, and the number of events after which it reads no more files.
PAGE_FILES, PAGE_EVENTS = 50, 100_000

_COLUMNS = ["topic", "broker", "partition_id", "offset", "published_at", "arrived_at", "event_id", "source", "type"]


class _WithSubject(msgspec.Struct):
    subject: object = None


_SUBJECT = msgspec.json.Decoder(_WithSubject)


@dataclass(frozen=True)
class EventQuery:
    """A search for valid events that meet all given conditions, in batches planned from `since` to before `until`."""

    bus: str | None = None
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


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


@dataclass(frozen=True)
class EventPage:
    """A page of events; `cursor` leads to the next page, and is None on the last page.

    `unreadable` has the errors of files that could not be read.
    """

    events: tuple[FoundEvent, ...]
    cursor: str | None
    unreadable: tuple[str, ...]


def event_page(runtime: Runtime, query: EventQuery, limit: int, after: str | None = None) -> EventPage:
    """Return at most `limit` events after a cursor, starting with the newest batch.

    A page ends after PAGE_FILES files, and after the file with which it has read PAGE_EVENTS events, so a page that has
    a cursor may be short or empty. Raises NotFoundError for an unknown bus, UserError for an invalid cursor, and
    UserError if a caller who is limited to owners names no bus.
    """
    _require_visible_bus(runtime, query.bus)
    cursor = read_cursor(after) if after else None
    found: list[FoundEvent] = []
    unreadable: list[str] = []
    last = cursor
    seen = 0
    # Only normal batches: a replay has files with copies of the events that it sends again.
    archive = files_from(runtime, "buffer", "archive", cursor, bus=query.bus, batch_kind="normal")
    visibility = visibility_of(runtime)
    matched = _MatchedEvents(runtime, visibility) if query.bus in visibility.shared else None
    for count, file in enumerate(archive):
        if count == PAGE_FILES or seen >= PAGE_EVENTS:
            return EventPage(tuple(found), write_cursor(cursor_at(file)), tuple(unreadable))
        if query.since is not None and file.planned_at < query.since:
            break  # all further files are older
        if query.until is not None and file.planned_at >= query.until:
            continue
        try:
            rows = None if matched is None else matched.rows(file.batch_id, file.path)
            count_of_file, fitting = _fitting(
                runtime, query, file.path, after=rows_after(cursor, file), limit=limit + 1 - len(found), among=rows
            )
        except StoreError as error:
            unreadable.append(str(error))
            continue
        seen += count_of_file
        for row, record in fitting:
            if len(found) == limit and last is not None:
                return EventPage(tuple(found), write_cursor(last), tuple(unreadable))
            found.append(FoundEvent(batch_id=file.batch_id, **record))
            last = cursor_at(file, row)
    return EventPage(tuple(found), None, tuple(unreadable))


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


def _require_visible_bus(runtime: Runtime, bus: str | None) -> None:
    if bus is not None:
        find_bus(runtime.rule_set(), bus)
    if not visibility_of(runtime).bus(bus):
        raise UserError("Name a bus: you see the events of your own buses and of buses that your rules use")


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


def _fitting(
    runtime: Runtime,
    query: EventQuery,
    path: str,
    *,
    after: int,
    limit: int,
    among: npt.NDArray[np.int64] | None = None,
) -> tuple[int, list[tuple[int, dict[str, Any]]]]:
    """Return the number of events in a file, and the first `limit` matching ones after a row, each with its row.

    If `among` is given, only these rows are searched.
    Only the columns that the filter needs are read for all events. Bodies, which contain the subject, are read only for
    events that meet all other conditions.
    """
    wanted = {name: value for name in ("type", "source") if (value := getattr(query, name)) is not None}
    table = read_table(runtime.store, path, ["status", *wanted])
    fits = pc.equal(table["status"], "valid")
    for name, value in wanted.items():
        fits = pc.and_(fits, pc.fill_null(pc.equal(table[name], value), False))
    rows = np.flatnonzero(flags_of(fits))
    rows = rows[rows > after]
    if among is not None:
        rows = np.intersect1d(rows, among)
    if query.subject is not None:
        rows = np.fromiter(islice(_read_with_subject(runtime, path, rows, query.subject), limit), np.int64)
    rows = rows[:limit]
    found = read_rows(runtime.store, path, row_vectors.encode(rows), _COLUMNS).to_pylist() if len(rows) else []
    return table.num_rows, list(zip(rows.tolist(), found, strict=True))


def _read_with_subject(runtime: Runtime, path: str, rows: npt.NDArray[np.int64], subject: str) -> Iterator[int]:
    """Yield those of the given rows whose event has the given subject."""
    for numbers, table in parts_of(runtime.store, path, ["body"], rows):
        # Only a body that contains the subject literally, or an escape, can match. No other body is parsed.
        text = pc.match_substring(table["body"], f'"{subject}"')
        parsed = np.flatnonzero(flags_of(pc.or_(text, pc.match_substring(table["body"], "\\"))))
        for number in parsed.tolist():
            if _subject(table["body"][number].as_py()) == subject:
                yield int(numbers[number])


def _subject(body: bytes) -> object:
    try:
        return _SUBJECT.decode(body).subject
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # An event may contain a lone surrogate, which msgspec rejects.
        return parse_document(body).get("subject")
