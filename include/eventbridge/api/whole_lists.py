"""Lists in the documents of the command line: rules, rule changes, targets, redrives, pools, checked hours, stats."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.access import reader
from eventbridge.api.documents import RESPONSES, Cursor
from eventbridge.api.paging import MOST, Limit, page_of, page_response
from eventbridge.api.payloads import visible_selection
from eventbridge.api.token_first import TokenFirst
from eventbridge.dead_letters.redrive_account import redrive_document, seen_redrives
from eventbridge.dead_letters.redrive_marks import Marks
from eventbridge.event.json_document import parse_document
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.quality import checked_hour_page
from eventbridge.views.rule_history import rule_change_page
from eventbridge.views.stats import stats_page
from eventbridge.views.target_status import target_list

router = APIRouter(
    route_class=TokenFirst,
    dependencies=[Depends(reader)],
    default_response_class=Response,
    responses=RESPONSES,
)


@router.get("/rules", summary="List rules and buses")
def rules(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Return the buses and rules in force, with their defaults filled in; rules are sorted by name."""

    def found(runtime: Runtime) -> tuple[Any, str | None]:
        document: Any = parse_document(runtime.rule_set().to_json())
        names, following = page_of(sorted(document["rules"]), lambda each: (each,), limit, cursor)
        return document | {"rules": {name: document["rules"][name] for name in names}}, following

    return page_response(request, found)


@router.get("/targets", summary="List targets")
def targets(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Return each target of the rules in force: its state, since when and why, and its number of pending deliveries."""
    return page_response(
        request, lambda runtime: page_of(target_list(runtime), lambda each: (each.rule, each.target), limit, cursor)
    )


@router.get("/redrives", summary="List redrives")
def redrives(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Return redrives, the newest first, with the outcomes of their dead letters."""

    def found(runtime: Runtime) -> tuple[Any, str | None]:
        some, following = page_of(seen_redrives(runtime), lambda each: (each.redrive_id,), limit, cursor)
        marks = Marks(runtime)
        return [visible_selection(request, redrive_document(each, marks.counts(each))) for each in some], following

    return page_response(request, found)


@router.get("/rule-changes", summary="List rule changes")
def rule_changes(
    request: Request,
    rule: Annotated[str | None, Query(description="Only this rule.")] = None,
    limit: Limit = MOST,
    cursor: Cursor = None,
) -> Response:
    """Return when rules were added, changed and removed, the newest first; a new batch records the changes."""
    return page_response(request, lambda runtime: rule_change_page(runtime, rule, limit, cursor))


@router.get("/pools", summary="List pools")
def pools(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Return, by pool, the slots that the rule files set and the slots that Airflow last reported."""

    def found(runtime: Runtime) -> tuple[Any, str | None]:
        by_name = sorted(runtime.ledger.applied_slots().values(), key=lambda each: each.pool)
        return page_of(by_name, lambda each: (each.pool,), limit, cursor)

    return page_response(request, found)


@router.get("/quality", summary="List quality checks")
def quality(request: Request, limit: Limit = 24, cursor: Cursor = None) -> Response:
    """Return the hours that Great Expectations checked, the latest first, with their numbers of failed measures."""
    return page_response(request, lambda runtime: checked_hour_page(runtime, limit, cursor))


@router.get("/stats", summary="List stats by rule and bus")
def stats(
    request: Request,
    days: Annotated[int, Query(ge=1, le=800, description="Number of days, today included.")] = 7,
    rule: Annotated[str | None, Query(description="Only this rule.")] = None,
    limit: Limit = MOST,
    cursor: Cursor = None,
) -> Response:
    """Return deliveries, bytes and CPU time by day and rule, and events landed by day and bus. `limit` counts rules."""
    return page_response(request, lambda runtime: stats_page(runtime, days, rule, limit, cursor))
