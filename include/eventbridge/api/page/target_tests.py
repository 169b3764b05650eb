"""The page that checks a target, or sends it one event."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.forms import OperatorForm, archived_event
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import visible_response_head
from eventbridge.control.try_target import check_target, send_event
from eventbridge.errors import TransformFailed, UserError
from eventbridge.rules.find import find_target
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix="/page/targets", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]


@router.get("/{rule}/{name}/try")
def form(
    request: Request, found: _Viewer, rule: str, name: str, event_id: Annotated[str, Query(alias="event")] = ""
) -> Response:
    """Return the form that checks a target, or sends it one event, pasted or from the archive."""

    def filled(runtime: Runtime) -> dict[str, Any]:
        find_target(runtime.rule_set(), rule, name)
        return {"body": archived_event(request, runtime, event_id)}

    values = {"viewer": found, "rule": rule, "target": name}
    return render(request, "try", values | run_for_caller(request, filled))


@router.post("/{rule}/{name}/try")
def tried(request: Request, submitted: OperatorForm, rule: str, name: str) -> Response:
    """Check a target, or send it an event, and return the form with the result."""

    def done(runtime: Runtime) -> dict[str, Any]:
        find_target(runtime.rule_set(), rule, name)
        try:
            if submitted["do"] == "check":
                return {"reached": check_target(runtime, rule, name)}
            response = send_event(runtime, rule, name, submitted["body"].encode("utf-8", "replace"))
        except UserError as error:
            return {"message": str(error)}
        except TransformFailed as error:
            return {"message": f"The transform fails for this event: {error}"}
        head = response.response_head.decode("utf-8", "replace")
        return {"response": response, "head": visible_response_head(request, head)}

    values = {"viewer": submitted.viewer, "rule": rule, "target": name, "body": submitted["body"]}
    return render(request, "try", values | run_for_caller(request, done))
