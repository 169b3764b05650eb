"""Serves lists page by page: the documents that the command line prints with `--json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from eventbridge.api import models
from eventbridge.api.access import reader
from eventbridge.api.call_pools import asks_buses, reads_store
from eventbridge.api.descriptions import described
from eventbridge.api.documents import RESPONSES, Cursor, From, Page, To, document_response, page_response
from eventbridge.api.payloads import can_see_payloads, visible_actions, visible_quality, visible_selection
from eventbridge.api.routes import TokenFirst
from eventbridge.control.actions import action_page
from eventbridge.dead_letters.redrives import Marks, find_redrive, redrive_document, visible_redrives
from eventbridge.errors import UserError
from eventbridge.event.json_document import parse_document
from eventbridge.model.api import V1
from eventbridge.model.cursor import read_name_cursor, write_name_cursor
from eventbridge.model.quality import QualityRecord
from eventbridge.quality.record import find_record, list_checked_hour_page
from eventbridge.replay.account import replay_document, replay_line, visible_replays
from eventbridge.rules.find import find_target
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import read_time
from eventbridge.views.batches import BatchAccount, batch_account, batch_page
from eventbridge.views.buses import BusStatus, bus_status, bus_statuses
from eventbridge.views.chunks import chunk_page
from eventbridge.views.event_condition import read_condition
from eventbridge.views.event_search import EventPage, EventQuery, event_page
from eventbridge.views.queues import queue_statuses
from eventbridge.views.rules import rule_change_page
from eventbridge.views.schemas import schema_page, schemas_named
from eventbridge.views.shadow import shadow_document, shadow_reports
from eventbridge.views.stats import stats_document, stats_page
from eventbridge.views.target_status import TargetLine, target_lines, target_list

#: The maximum number of items on one page.
MOST = 500

_Item = TypeVar("_Item")

router = APIRouter(
    prefix=V1,
    route_class=TokenFirst,
    dependencies=[Depends(reader)],
    default_response_class=Response,
    responses=RESPONSES,
)

_Rule = Annotated[str, Path(description="The name of a rule.")]
_Target = Annotated[str, Path(description="The name of a target of the rule.")]
_Limit = Annotated[int, Query(ge=1, le=MOST, description="The maximum number of items.")]


@router.get("/batches", summary="List batches", **described("list_batches", "history", models.BatchList))
def batches(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return batches, the newest first. Send `next` as `cursor` for the next page."""
    return page_response(request, lambda runtime: _page(batch_page(runtime, limit, cursor)))


@router.get("/batches/{batch}", summary="Get a batch", **described("get_batch", "history", BatchAccount))
@reads_store
def batch(request: Request, batch: Annotated[str, Path(description="The id, or the beginning of it.")]) -> Response:
    """Return the batch's ranges, its chunks, the time that each stage took and, once committed, its reconciliation."""
    return document_response(request, lambda runtime: batch_account(runtime, batch))


@router.get("/replays", summary="List replays", **described("list_replays", "replays", models.ReplayList))
def replays(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return replays with their progress, the newest first. Send `next` as `cursor` for the next page."""

    def load(runtime: Runtime) -> Page:
        some, following = page_of(visible_replays(runtime), lambda each: (each.replay_id,), limit, cursor)
        return {"replays": [visible_selection(request, replay_line(runtime, each)) for each in some]}, following

    return page_response(request, load)


@router.get("/replays/{replay}", summary="Get a replay", **described("get_replay", "replays", models.Replay))
@reads_store
def replay(request: Request, replay: Annotated[str, Path(description="The id, or the beginning of it.")]) -> Response:
    """Return a replay: its request, its progress, and the outcomes of its deliveries."""
    return document_response(request, lambda runtime: visible_selection(request, replay_document(runtime, replay)))


@dataclass(frozen=True)
class SearchQuery:
    """The filters of an event search; an event must meet all filters that are given."""

    bus: Annotated[str | None, Query(description="Only events on this bus.")] = None
    type: Annotated[str | None, Query(description="Only events of this type.")] = None
    source: Annotated[str | None, Query(description="Only events of this source.")] = None
    subject: Annotated[str | None, Query(description="Only events of this subject; needs the scope `payloads`.")] = None
    status: Annotated[
        str | None,
        Query(description="Only events of this status: unmatched, delivered, pending, dead_lettered, unknown."),
    ] = None
    rule: Annotated[
        str | None,
        Query(description="Only events with deliveries of this rule. With `status`: their status counts alone."),
    ] = None
    condition: Annotated[
        str | None,
        Query(
            description="Only events that meet a condition on a JSON path, such as `$.data.amount > 100`; needs the "
            "scope `payloads`."
        ),
    ] = None
    since: From = None
    until: To = None
    limit: _Limit = 50
    cursor: Cursor = None

    def has_filter(self) -> bool:
        """Return whether any filter is given."""
        given = (self.bus, self.type, self.source, self.subject, self.status, self.rule, self.condition)
        return any((*given, self.since, self.until))

    def page(self, runtime: Runtime) -> EventPage:
        """Return the page of matching events."""
        now = runtime.clock()
        query = EventQuery(
            bus=self.bus or None,
            type=self.type or None,
            source=self.source or None,
            subject=self.subject or None,
            since=read_time("from", self.since or None, now),
            until=read_time("to", self.until or None, now),
            status=self.status or None,
            rule=self.rule or None,
            condition=read_condition(self.condition) if self.condition else None,
        )
        return event_page(runtime, query, self.limit, self.cursor or None)


@router.get("/events", summary="Find events", **described("list_events", "events", models.EventList))
@reads_store
def events(request: Request, query: Annotated[SearchQuery, Depends()]) -> Response:
    """Return valid events of the archive, most recently landed first. Send `next` as `cursor` for the next page.

    One call reads at most 50 files, and stops after 100,000 events, or after 20,000 events and 2 seconds on which a
    condition is evaluated, so it may return `next` with few events, or none.
    """
    return page_response(request, lambda runtime: _page(query.page(runtime)))


@router.get("/buses", summary="List buses", **described("list_buses", "buses", models.BusList))
@asks_buses
def buses(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return each bus: its source, and the lag, in-flight and available events and flow of each partition."""

    def load(runtime: Runtime) -> Page:
        some, following = page_of(bus_statuses(runtime), lambda each: (each.bus,), limit, cursor)
        return {"buses": some}, following

    return page_response(request, load)


@router.get("/buses/{bus}", summary="Get a bus", **described("get_bus", "buses", BusStatus))
@asks_buses
def bus(request: Request, bus: Annotated[str, Path(description="The name of a bus.")]) -> Response:
    """Return a bus: its source, and the lag, in-flight and available events and flow of each partition and runner."""
    return document_response(request, lambda runtime: bus_status(runtime, bus))


@router.get("/queues", summary="List queues", **described("list_queues", "queues", models.QueueList))
def queues(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return each queue with the number of its deliveries that are ready, delayed, blocked, received and finished."""

    def load(runtime: Runtime) -> Page:
        some, following = page_of(queue_statuses(runtime), lambda each: (each.queue,), limit, cursor)
        return {"queues": some}, following

    return page_response(request, load)


@router.get(
    "/actions", summary="List the actions of operators", **described("list_actions", "history", models.ActionList)
)
def actions(request: Request, limit: _Limit = 50, cursor: Cursor = None) -> Response:
    """Return every change that was requested by API, page or command line, and who requested it, the newest first."""
    return page_response(request, lambda runtime: _page(visible_actions(request, action_page(runtime, limit, cursor))))


@router.get(
    "/quality/{hour}",
    summary="Get the quality check of an hour",
    **described("get_quality_check", "history", QualityRecord),
)
@reads_store
def quality_of_hour(
    request: Request, hour: Annotated[str, Path(description="Any time in that hour, in UTC.")]
) -> Response:
    """Return every measure of a checked hour, with its bounds. Values of events need the `payloads` scope."""
    return document_response(request, lambda runtime: visible_quality(request, find_record(runtime, hour)))


@router.get("/chunks", summary="List chunks", **described("list_chunks", "history", models.ChunkList))
@reads_store
def chunks(
    request: Request,
    failures: Annotated[bool, Query(description="Only failed chunks, each with its last error.")] = False,
    limit: _Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Return chunks, those of the newest batch first. Send `next` as `cursor` for the next page.

    One call searches at most 500 batches, so it may return `next` with few chunks, or none.
    """

    def load(runtime: Runtime) -> Page:
        shown = can_see_payloads(request)
        return _page(chunk_page(runtime, limit, cursor, failures=failures, payloads=shown))

    return page_response(request, load)


@router.get("/schemas", summary="List event types", **described("list_schemas", "events", models.SchemaList))
def schemas(
    request: Request,
    bus: Annotated[str | None, Query(description="Only types on this bus.")] = None,
    limit: _Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Return event types by bus and name, with their numbers of fields. Send `next` as `cursor` for the next page."""
    return page_response(request, lambda runtime: _page(schema_page(runtime, limit, cursor, bus)))


@router.get(
    "/schemas/{type:path}",
    summary="List the schemas of an event type",
    **described("list_type_schemas", "events", models.TypeSchemas),
)
def schema(
    request: Request,
    type: Annotated[str, Path(description="An event type.")],
    bus: Annotated[str | None, Query(description="Only on this bus.")] = None,
    limit: _Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Return the fields of the type on each bus: types and null rates, and examples with the `payloads` scope."""

    def load(runtime: Runtime) -> Page:
        found = schemas_named(runtime, type, bus, examples=can_see_payloads(request))
        some, following = page_of(found, lambda each: (each.bus,), limit, cursor)
        return {"schemas": some}, following

    return page_response(request, load)


@router.get("/rules", summary="List rules and buses", **described("list_rules", "rules", models.RuleList))
def rules(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return the buses and rules in force, with their defaults filled in; rules are sorted by name."""

    def load(runtime: Runtime) -> Page:
        document: Any = parse_document(runtime.rule_set().to_json())
        names, following = page_of(sorted(document["rules"]), lambda each: (each,), limit, cursor)
        return document | {"rules": {name: document["rules"][name] for name in names}}, following

    return page_response(request, load)


@router.get(
    "/rules/{rule}/shadows",
    summary="Compare shadows",
    **described("list_shadows", "rules", models.ShadowList),
)
@reads_store
def shadows(
    request: Request,
    rule: _Rule,
    since: From = "1h",
    until: To = None,
    samples: Annotated[int, Query(ge=0, le=100)] = 10,
    limit: _Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Return the differences between a rule's targets and their shadows. Samples need the `payloads` scope."""
    shown = samples if can_see_payloads(request) else 0

    def load(runtime: Runtime) -> Page:
        found = shadow_reports(runtime, rule, since or "1h", until, shown)
        some, following = page_of(found, lambda each: (each.shadow,), limit, cursor)
        return {"shadows": [shadow_document(each) for each in some]}, following

    return page_response(request, load)


@router.get("/targets", summary="List targets", **described("list_targets", "targets", models.TargetList))
def targets(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return the state, reason and pending count of each target, including unhealthy targets of removed rules."""

    def load(runtime: Runtime) -> Page:
        some, following = page_of(target_list(runtime), lambda each: (each.rule, each.target), limit, cursor)
        return {"targets": some}, following

    return page_response(request, load)


@router.get(
    "/targets/{rule}/{target}",
    summary="Get a target",
    **described("get_target", "targets", TargetLine),
)
def target(
    request: Request, rule: _Rule, target: Annotated[str, Path(description="The name of a target of the rule.")]
) -> Response:
    """Return a target's state, its reason and start, and the number of pending deliveries."""

    def load(runtime: Runtime) -> Any:
        find_target(runtime.rule_set(), rule, target)
        return next((each for each in target_lines(runtime, rule) if each.target == target), None)

    return document_response(request, load)


@router.get("/redrives", summary="List redrives", **described("list_redrives", "dead letters", models.RedriveList))
@reads_store
def redrives(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return redrives, the newest first, with the outcomes of their dead letters."""

    def load(runtime: Runtime) -> Page:
        some, following = page_of(visible_redrives(runtime), lambda each: (each.redrive_id,), limit, cursor)
        marks = Marks(runtime)
        found = [visible_selection(request, redrive_document(each, marks.counts(each))) for each in some]
        return {"redrives": found}, following

    return page_response(request, load)


@router.get(
    "/redrives/{redrive}",
    summary="Get a redrive",
    **described("get_redrive", "dead letters", models.Redrive),
)
@reads_store
def redrive(request: Request, redrive: Annotated[str, Path(description="The id, or the beginning of it.")]) -> Response:
    """Return a redrive: its selection, and the outcomes of its dead letters."""

    def load(runtime: Runtime) -> dict[str, Any]:
        found = find_redrive(runtime, redrive)
        return visible_selection(request, redrive_document(found, Marks(runtime).counts(found)))

    return document_response(request, load)


@router.get(
    "/rule-changes", summary="List rule changes", **described("list_rule_changes", "rules", models.RuleChangeList)
)
def rule_changes(
    request: Request,
    rule: Annotated[str | None, Query(description="Only this rule.")] = None,
    limit: _Limit = MOST,
    cursor: Cursor = None,
) -> Response:
    """Return when rules were added, changed and removed, the newest first; planning a batch records the changes."""

    def load(runtime: Runtime) -> Page:
        some, following = rule_change_page(runtime, rule, limit, cursor)
        return {"rule_changes": some}, following

    return page_response(request, load)


@router.get("/pools", summary="List pools", **described("list_pools", "state", models.PoolList))
def pools(request: Request, limit: _Limit = MOST, cursor: Cursor = None) -> Response:
    """Return, by pool, the slots that the rule files set and the slots that Airflow last reported."""

    def load(runtime: Runtime) -> Page:
        by_name = sorted(runtime.ledger.pools.applied_slots().values(), key=lambda each: each.pool)
        some, following = page_of(by_name, lambda each: (each.pool,), limit, cursor)
        return {"pools": some}, following

    return page_response(request, load)


@router.get(
    "/quality", summary="List quality checks", **described("list_quality_checks", "history", models.QualityCheckList)
)
def quality(request: Request, limit: _Limit = 24, cursor: Cursor = None) -> Response:
    """Return the hours that Great Expectations checked, the latest first, with their numbers of failed measures."""

    def load(runtime: Runtime) -> Page:
        some, following = list_checked_hour_page(runtime, limit, cursor)
        return {"quality_checks": some}, following

    return page_response(request, load)


@router.get("/stats", summary="List stats by rule and bus", **described("list_stats", "history", models.StatsPage))
def stats(
    request: Request,
    days: Annotated[int, Query(ge=1, le=800, description="Number of days, today included.")] = 7,
    rule: Annotated[str | None, Query(description="Only this rule.")] = None,
    limit: _Limit = MOST,
    cursor: Cursor = None,
) -> Response:
    """Return deliveries, bytes and CPU time by day and rule, and events landed by day and bus. `limit` counts rules."""

    def load(runtime: Runtime) -> Page:
        found, following = stats_page(runtime, days, rule, limit, cursor)
        return stats_document(found), following

    return page_response(request, load)


def page_of(
    items: Sequence[_Item], name: Callable[[_Item], Sequence[str]], limit: int, cursor: str | None
) -> tuple[Sequence[_Item], str | None]:
    """Return the items after the one that the cursor names, and the cursor of the next page (None if there is none).

    Raises UserError if the cursor is invalid, or if its item no longer exists.
    """
    first = 0
    if cursor:
        behind = read_name_cursor(cursor, len(name(items[0])) if items else 1)
        first = next((number for number, each in enumerate(items, 1) if tuple(name(each)) == behind), -1)
        if first < 0:
            raise UserError("the item that the cursor names no longer exists. Start again without a cursor")
    last = first + limit
    return items[first:last], write_name_cursor(*name(items[last - 1])) if last < len(items) else None


def _page(found: Any) -> Page:
    """Return a dataclass with a cursor as a page."""
    fields = dict(vars(found))
    return fields, fields.pop("cursor")
