"""Event types and their fields, as learned from landed events, with the rules that use each field."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Viewer, viewer
from eventbridge.api.payloads import HIDDEN, can_see_payloads
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of
from eventbridge.views.schemas import MOST_RULES, field_users, schema_page, schemas_named

router = APIRouter(prefix="/page/schemas", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
_LISTED = 100


@router.get("")
def schemas(request: Request, found: _Viewer, bus: str = "", cursor: str = "") -> Response:
    """Return a page of the event types of one bus, or of all."""

    def listed(runtime: Runtime) -> dict[str, Any]:
        visibility = visibility_of(runtime)
        buses = [name for name in sorted(runtime.rule_set().buses) if visibility.bus(name)]
        chosen = bus or (None if runtime.owners is None else next(iter(buses), None))
        page = schema_page(runtime, _LISTED, cursor or None, chosen) if chosen or runtime.owners is None else None
        return {"buses": buses, "bus": chosen or "", "page": page}

    return render(request, "schemas", {"viewer": found} | run_for_caller(request, listed))


@router.get("/{type:path}")
def schema(request: Request, found: _Viewer, type: str) -> Response:
    """Return the fields of a type on each bus: types, null rates, examples, and the rules that use them."""

    def load(runtime: Runtime) -> dict[str, Any]:
        known = schemas_named(runtime, type, examples=can_see_payloads(request))
        return {"schemas": [(each, *field_users(runtime, each)) for each in known]}

    values = {"viewer": found, "type": type, "hidden": "" if can_see_payloads(request) else HIDDEN, "most": MOST_RULES}
    return render(request, "schema", values | run_for_caller(request, load))
