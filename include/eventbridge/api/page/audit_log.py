"""Serves the audit log: what was requested, by whom, when, on what and with which result, and a search in it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import visible_actions
from eventbridge.control.actions import action_page
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.audit_log import AuditLine, audit_line

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_LISTED = 40
#: The maximum number of actions that one page searches.
_MAX_SEARCHED = 2_000


@router.get("/actions")
def actions(
    request: Request,
    found: Annotated[Viewer, Depends(viewer)],
    text: Annotated[str, Query(alias="find", max_length=200)] = "",
    cursor: str = "",
) -> Response:
    """Return the actions of operators that contain some words, the newest first."""
    words = text.split()

    def load(runtime: Runtime) -> dict[str, Any]:
        lines: list[AuditLine] = []
        following, searched = cursor or None, 0
        while True:
            page = visible_actions(request, action_page(runtime, _LISTED, following))
            lines += [line for line in map(audit_line, page.actions) if line.contains(words)]
            following, searched = page.cursor, searched + len(page.actions)
            if following is None or len(lines) >= _LISTED or searched >= _MAX_SEARCHED:
                return {"lines": lines, "cursor": following, "searched": searched}

    return render(request, "actions", {"viewer": found, "find": text} | run_for_caller(request, load))
