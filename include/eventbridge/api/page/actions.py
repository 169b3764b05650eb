"""The page of actions: changes that people requested by API, page and command line, and their results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import visible_actions
from eventbridge.control.actions import action_page

router = APIRouter(prefix="/page/actions", include_in_schema=False, default_response_class=Response)

_LISTED = 100


@router.get("")
def actions(request: Request, found: Annotated[Viewer, Depends(viewer)], cursor: str = "") -> Response:
    """Return the actions of operators, the newest first."""
    page = run_for_caller(
        request, lambda runtime: visible_actions(request, action_page(runtime, _LISTED, cursor or None))
    )
    return render(request, "actions", {"viewer": found, "actions": page.actions, "cursor": page.cursor})
