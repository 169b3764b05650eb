"""Serves the list of events with its filters, and the export of the events that the filters find."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import reads_store
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.period import DEFAULT, period_links
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import can_see_payloads
from eventbridge.errors import UserError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.runtime.batch_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import read_time
from eventbridge.runtime.visibility import visibility_of
from eventbridge.views.event_condition import read_condition
from eventbridge.views.event_search import EventQuery, PlacedPage, bodies_of, placed_page, statuses_of
from eventbridge.views.event_status import STATUSES

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

#: The maximum number of events, and of bytes, in an export, and the seconds after which it ends with what it has.
MAX_EXPORTED: Final = 5_000
MAX_EXPORT_BYTES: Final = 32 << 20
EXPORT_SECONDS: Final = 20.0
#: Spreadsheets take a cell that begins with one of these as a formula, which could read other cells and send them.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_FIELDS: Final = ("event_id", "type", "source", "published_at", "arrived_at", "status", "rules", "batch_id")
_LISTED: Final = 50
#: The maximum number of rules that the filter lists; with more, the name is typed.
_MAX_LISTED_RULES: Final = 200


@dataclass(frozen=True)
class EventFilters:
    """The filters of the list of events as the form sends them; an event must meet all filters that are given."""

    bus: str | None = None
    type: str = ""
    source: str = ""
    subject: str = ""
    status: str = ""
    rule: str = ""
    pattern: str = ""
    since: Annotated[str, Query(alias="from")] = ""
    until: Annotated[str, Query(alias="to")] = ""
    cursor: str = ""

    def has_filter(self) -> bool:
        """Return whether any filter but the bus and the time is given."""
        return any((self.type, self.source, self.subject, self.status, self.rule, self.pattern))

    def search(self, runtime: Runtime) -> EventQuery:
        """Return the search for the events of the last day, or of the given time.

        Raises UserError for a wrong time or condition.
        """
        now = runtime.clock()
        return EventQuery(
            bus=self.bus or None,
            type=self.type or None,
            source=self.source or None,
            subject=self.subject or None,
            since=read_time("from", self.since or DEFAULT, now),
            until=read_time("to", self.until or None, now),
            status=self.status or None,
            rule=self.rule or None,
            condition=read_condition(self.pattern) if self.pattern.strip() else None,
        )


@router.get("/events")
@reads_store
def events(
    request: Request, token: Annotated[Viewer, Depends(viewer)], query: Annotated[EventFilters, Depends()]
) -> Response:
    """Return the events that the filters find, the newest first, each with its status."""
    return render(
        request, "events", {"viewer": token} | run_for_caller(request, lambda runtime: _list(runtime, request, query))
    )


@router.get("/events/export")
@reads_store
def export(
    request: Request,
    token: Annotated[Viewer, Depends(viewer)],
    query: Annotated[EventFilters, Depends()],
    format: Annotated[Literal["jsonl", "csv"], Query()] = "jsonl",
) -> Response:
    """Return the events that the filters find as JSON Lines or CSV; with their bodies if payloads may be seen.

    The name of the file says so if it has only the first MAX_EXPORTED events, or fewer because of their size.
    """
    bodies = can_see_payloads(request)
    rows, is_complete = run_for_caller(request, lambda runtime: exported(runtime, query, bodies=bodies))
    content = _jsonl(rows) if format == "jsonl" else _csv(rows)
    headers = {
        "content-disposition": f'attachment; filename="{file_name(format, len(rows), is_complete=is_complete)}"',
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    media_type = "application/x-ndjson" if format == "jsonl" else "text/csv; charset=utf-8"
    return Response(content.encode("utf-8", "replace"), headers=headers, media_type=media_type)


def _list(runtime: Runtime, request: Request, query: EventFilters) -> dict[str, Any]:
    parameters = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    given = [each for each in parameters if each[0] != "live"]
    live = request.query_params.get("live") == "1"
    visibility = visibility_of(runtime)
    rules = runtime.rule_set()
    buses = [name for name in sorted(rules.buses) if visibility.bus(name)]
    query = replace(query, bus=query.bus or _preselected_bus(runtime, query, buses))
    shown = {name: value or "" for name, value in vars(query).items()}
    values = {
        "query": shown,
        "buses": buses,
        "rules": sorted(rules.rules) if len(rules.rules) <= _MAX_LISTED_RULES else [],
        "statuses": STATUSES,
        "live": live,
        "live_query": urlencode(given if live else [*given, ("live", "1")]),
        "kept_query": urlencode(given),
        "period_links": list(period_links(request)),
        "message": "",
        "max_exported": MAX_EXPORTED,
    }
    try:
        page = placed_page(runtime, query.search(runtime), _LISTED, query.cursor or None)
    except UserError as error:  # a wrong filter, which is shown again
        return values | {"message": str(error), "found": [], "cursor": None, "unreadable": ()}
    found = list(zip(page.events, statuses_of(page), strict=True))
    return values | {"found": found, "cursor": page.cursor, "unreadable": page.unreadable}


def _preselected_bus(runtime: Runtime, query: EventFilters, buses: list[str]) -> str | None:
    """Return the bus to show if none is chosen: without any filter, that of the newest batch.

    A caller who is limited to owners must name a bus.
    """
    if runtime.owners is not None:
        return next(iter(buses), None)
    if query.has_filter() or query.bus is not None:
        return None
    newest = next(newest_files(runtime, "buffer", "archive"), None)
    bus = runtime.ledger.batches.get(newest.batch_id).bus if newest is not None else None
    return bus if bus in buses else None


def file_name(extension: str, count: int, *, is_complete: bool) -> str:
    """Return the name of an exported file, which says so if the file has only the first events."""
    return f"events.{extension}" if is_complete else f"events-first-{count}.{extension}"


def exported(runtime: Runtime, query: EventFilters, *, bodies: bool) -> tuple[list[dict[str, Any]], bool]:
    """Return the attributes and the status of the events, with the bodies if asked, and whether these are all events.

    Raises UserError for a wrong filter.
    """
    search = query.search(runtime)
    ends_at = time.monotonic() + EXPORT_SECONDS
    rows: list[dict[str, Any]] = []
    size, cursor = 0, None
    while True:
        page = placed_page(runtime, search, min(500, MAX_EXPORTED - len(rows)), cursor)
        for row in _rows(runtime, page, bodies):
            size += len(row.get("event", ""))
            if size > MAX_EXPORT_BYTES and rows:
                return rows, False
            rows.append(row)
        cursor = page.cursor
        if cursor is None:
            return rows, not page.unreadable
        if len(rows) >= MAX_EXPORTED or time.monotonic() > ends_at:
            return rows, False


def _rows(runtime: Runtime, page: PlacedPage, bodies: bool) -> Iterator[dict[str, Any]]:
    texts = bodies_of(runtime, page.places) if bodies else {}
    for each, place, status in zip(page.events, page.places, statuses_of(page), strict=True):
        known = vars(each) | {"status": status.status if status else "", "rules": status.rules if status else ""}
        row = {name: value.isoformat() if hasattr(value := known[name], "isoformat") else value for name in _FIELDS}
        if place in texts:
            row["event"] = write_document(parse_document(texts[place]))
        yield row


def _jsonl(rows: list[dict[str, Any]]) -> str:
    """Return the rows as JSON Lines; the event is written as it is, so that its numbers keep their digits."""
    lines = []
    for row in rows:
        event = row.get("event")
        head = write_document({name: value for name, value in row.items() if name != "event"})
        lines.append(head if event is None else f'{head[:-1]},"event":{event}}}')
    return "".join(f"{line}\n" for line in lines)


def _csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV; a text that a spreadsheet would take as a formula gets an apostrophe in front."""
    columns = [*_FIELDS, *(["event"] if any("event" in row for row in rows) else [])]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name, "")) for name in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
