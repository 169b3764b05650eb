"""Lists, page by page: batches, replays, events of the archive, and the buses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from eventbridge.api.access import reader
from eventbridge.api.paging import paged
from eventbridge.api.payloads import actions_seen, quality_seen, selection_seen, shows_payloads
from eventbridge.api.reading import RESPONSES, Cursor, Time, document
from eventbridge.api.token_first import TokenFirst
from eventbridge.event.plain import plain
from eventbridge.stages.operate.actions import action_page
from eventbridge.stages.operate.batch_account import batch_account, batch_page
from eventbridge.stages.operate.chunk_status import chunk_failures, chunk_statuses
from eventbridge.stages.operate.event_search import EventPage, EventQuery, event_page
from eventbridge.stages.operate.find import find_bus
from eventbridge.stages.operate.quality import found_in_hour
from eventbridge.stages.operate.replay_progress import replay_document, replay_line, seen_replays
from eventbridge.stages.operate.schemas import schema_page, schemas_named
from eventbridge.stages.operate.status import status, status_fields
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.time_range import read_time

#: What one page has at most.
MOST = 500

router = APIRouter(
    route_class=TokenFirst,
    dependencies=[Depends(reader)],
    default_response_class=Response,
    responses=RESPONSES,
)

_Limit = Annotated[int, Query(ge=1, le=MOST, description="How many to return at most.")]


@router.get("/batches", summary="List batches")
def batches(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return batches, the newest first; `cursor`: send it for what follows."""
    return document(request, lambda runtime: batch_page(runtime, limit, cursor))


@router.get("/batches/{batch}", summary="Tell one batch")
def batch(request: Request, batch: Annotated[str, Path(description="The beginning of its id.")]) -> Response:
    """Return what a batch took, its chunks, how long its stages took and, once it is committed, its reconciliation."""
    return document(request, lambda runtime: batch_account(runtime, batch))


@router.get("/replays", summary="List replays")
def replays(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return the newest replays, and how far they came; `cursor`: send it for what follows."""

    def found(runtime: Runtime) -> dict[str, Any]:
        some, following = paged(seen_replays(runtime), lambda each: (each.replay_id,), limit, cursor)
        return {"replays": [selection_seen(request, replay_line(runtime, each)) for each in some], "cursor": following}

    return document(request, found)


@router.get("/replays/{replay}", summary="Tell one replay")
def replay(request: Request, replay: Annotated[str, Path(description="The beginning of its id.")]) -> Response:
    """Return what was asked for, how far it came, and what its deliveries came to."""
    return document(request, lambda runtime: selection_seen(request, replay_document(runtime, replay)))


@dataclass(frozen=True)
class SearchQuery:
    """The parameters that choose events: those that fit every one that is given."""

    bus: Annotated[str | None, Query(description="Only on this bus.")] = None
    type: Annotated[str | None, Query(description="Only of this type.")] = None
    source: Annotated[str | None, Query(description="Only of this source.")] = None
    subject: Annotated[str | None, Query(description="Only of this subject; with the scope payloads.")] = None
    since: Time = None
    until: Time = None
    limit: _Limit = 50
    cursor: Cursor = None

    def asked(self) -> bool:
        """Return whether anything is looked for."""
        return any((self.bus, self.type, self.source, self.subject, self.since, self.until))

    def page(self, runtime: Runtime) -> EventPage:
        """Return the page of events that it chooses."""
        now = runtime.clock()
        query = EventQuery(
            bus=self.bus or None,
            type=self.type or None,
            source=self.source or None,
            subject=self.subject or None,
            since=read_time("since", self.since or None, now),
            until=read_time("until", self.until or None, now),
        )
        return event_page(runtime, query, self.limit, self.cursor or None)


@router.get("/events", summary="Find events")
def events(request: Request, query: Annotated[SearchQuery, Depends()]) -> Response:
    """Return valid events of the archive, those landed last first; `cursor`: send it for what follows.

    One call reads at most 50 files, and none once it has read 100,000 events: it may return few, or none, and a cursor
    all the same.
    """
    return document(request, query.page)


@router.get("/buses", summary="Tell how every bus stands")
def buses(request: Request) -> Response:
    """Return each bus of today's rules: its source, and lag, in flight, available and flow of its partitions."""

    def found(runtime: Runtime) -> list[dict[str, Any]]:
        fields = status_fields(status(runtime, batches=0))
        return [_bus(runtime, name, fields) for name in sorted(runtime.rule_set().buses)]

    return document(request, found)


@router.get("/buses/{bus}", summary="Tell how one bus stands")
def bus(request: Request, bus: Annotated[str, Path(description="The name of a bus.")]) -> Response:
    """Return its source, and lag, in flight, available and flow of its partitions, for each runner."""

    def found(runtime: Runtime) -> dict[str, Any]:
        find_bus(runtime.rule_set(), bus)
        return _bus(runtime, bus, status_fields(status(runtime, batches=0)))

    return document(request, found)


@router.get("/actions", summary="List who asked for what")
def actions(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return what was asked for by API, page and command line that changes something, the newest first, and by whom."""
    return document(request, lambda runtime: actions_seen(request, action_page(runtime, limit, cursor)))


@router.get("/quality/{hour}", summary="Tell what the check of an hour found")
def quality_of_hour(
    request: Request, hour: Annotated[str, Path(description="A time in the hour, in UTC.")]
) -> Response:
    """Return every measure of an hour that was checked, with its bounds; values of events are payloads."""
    return document(request, lambda runtime: quality_seen(request, found_in_hour(runtime, hour)))


@router.get("/chunks", summary="Tell chunks of the newest batches")
def chunks(
    request: Request,
    batches: Annotated[int, Query(ge=1, le=100, description="Of how many batches.")] = 10,
    failures: Annotated[bool, Query(description="The newest 20 that failed instead, and why.")] = False,
) -> Response:
    """Return the chunks of the newest batches, or those that failed."""

    def found(runtime: Runtime) -> Any:
        if failures:
            return chunk_failures(runtime, limit=20, payloads=shows_payloads(request))
        return chunk_statuses(runtime, batches=batches)

    return document(request, found)


@router.get("/schemas", summary="List the types of events")
def schemas(
    request: Request,
    bus: Annotated[str | None, Query(description="Only on this bus.")] = None,
    limit: _Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Return types by bus and name, each with how many fields are known of it; `cursor`: send it for what follows."""
    return document(request, lambda runtime: schema_page(runtime, limit, cursor, bus))


@router.get("/schemas/{type:path}", summary="Tell the fields of a type")
def schema(
    request: Request,
    type: Annotated[str, Path(description="A type of events.")],
    bus: Annotated[str | None, Query(description="Only on this bus.")] = None,
) -> Response:
    """Return the fields of a type on each bus that has it: types, null rates and, to who may see payloads, examples."""
    return document(request, lambda runtime: schemas_named(runtime, type, bus, examples=shows_payloads(request)))


def _bus(runtime: Runtime, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    rules = runtime.rule_set()
    source = rules.buses[name].source
    return {
        "bus": name,
        "source": source.type,
        "topics": list(source.topics),
        "rules": sum(each.bus == name for each in rules.rules.values()),
        "partitions": [each for each in fields["partitions"] if each["bus"] == name],
        "flows": [each for each in plain(fields["flows"]) if each["bus"] == name],
    }
