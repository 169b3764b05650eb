"""Lists that the command line prints whole: rules, targets, redrives."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from eventbridge.api.access import reader
from eventbridge.api.paging import MOST, Limit, page, paged
from eventbridge.api.reading import RESPONSES, Cursor
from eventbridge.event.json_document import parse_document
from eventbridge.stages.operate.target_status import target_list
from eventbridge.stages.redrive.account import redrive_document, seen_redrives
from eventbridge.stages.redrive.marks import Marks
from eventbridge.stages.runtime.runtime import Runtime

router = APIRouter(dependencies=[Depends(reader)], default_response_class=Response, responses=RESPONSES)


@router.get("/rules", summary="Tell today's rules and buses")
def rules(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Answer the buses and rules of today, with everything that was left out filled in; rules by name."""

    def found(work: Runtime) -> tuple[Any, str | None]:
        document: Any = parse_document(work.rule_set().to_json())
        names, following = paged(sorted(document["rules"]), lambda each: (each,), limit, cursor)
        return document | {"rules": {name: document["rules"][name] for name in names}}, following

    return page(request, found)


@router.get("/targets", summary="Tell how every target stands")
def targets(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Answer the state of each target of today's rules, since when and why, and how many deliveries wait for it."""
    return page(request, lambda work: paged(target_list(work), lambda each: (each.rule, each.target), limit, cursor))


@router.get("/redrives", summary="List redrives")
def redrives(request: Request, limit: Limit = MOST, cursor: Cursor = None) -> Response:
    """Answer the redrives, the newest first, and what became of the dead letters that each took."""

    def found(work: Runtime) -> tuple[Any, str | None]:
        some, following = paged(seen_redrives(work), lambda each: (each.redrive_id,), limit, cursor)
        marks = Marks(work)
        return [redrive_document(each, marks.counts(each)) for each in some], following

    return page(request, found)
