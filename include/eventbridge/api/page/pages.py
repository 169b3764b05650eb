"""Serves the read-only pages (overview, event, rules, targets, dead letters, event types) and the login."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import asks_buses, reads_store
from eventbridge.api.documents import DeadLetterQuery, run_for_caller
from eventbridge.api.error_codes import CODES
from eventbridge.api.page import values
from eventbridge.api.page.forms import read_form, redirect_to
from eventbridge.api.page.overview import lag_values, overview_values, portal_values
from eventbridge.api.page.period import period_of
from eventbridge.api.page.render import render
from eventbridge.api.page.search_box import page_for
from eventbridge.api.page.session import Viewer, check_origin, forget, keep, token_of, viewer
from eventbridge.api.payloads import HIDDEN, can_see_payloads
from eventbridge.event.json_document import write_document
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.visibility import visibility_of
from eventbridge.views.schemas import MAX_RULES, field_users, newest_changes, schema_page, schemas_named

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_MAX_FORM_BYTES = 4_096

#: The login of the page, which a mounting server replaces with its own.
own_login = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]


@router.get("")
@asks_buses
def overview(request: Request, token: _Viewer) -> Response:
    """Return the overview: lag, unhealthy targets, pending deliveries, and the newest batches."""
    if token.is_portal:
        return _page(request, token, "portal", run_for_caller(request, lambda runtime: portal_values(runtime, request)))
    return _page(
        request,
        token,
        "overview",
        run_for_caller(request, lambda runtime: overview_values(runtime, request, period_of(request))),
    )


@router.get("/find")
def find(request: Request, token: _Viewer, text: Annotated[str, Query(alias="q")] = "") -> Response:
    """Redirect from the search box to the page of what its text names."""
    fields = period_of(request).fields
    return redirect_to(request, run_for_caller(request, lambda runtime: page_for(runtime, text, fields)))


@router.get("/event")
@reads_store
def event(
    request: Request,
    token: _Viewer,
    event_id: Annotated[str, Query(alias="id")] = "",
    every_rule: bool = False,
    rule: str = "",
) -> Response:
    """Return the trace of an event."""
    wanted = event_id.strip()
    found = (
        run_for_caller(
            request, lambda runtime: values.event(runtime, request, wanted, every_rule=every_rule, rule=rule.strip())
        )
        if wanted
        else {"event_id": ""}
    )
    return _page(request, token, "event", found)


@router.get("/errors")
def errors(request: Request, token: _Viewer) -> Response:
    """Return what each code of a refused call means; the `type` of a problem leads here."""
    return _page(request, token, "errors", {"codes": CODES})


@router.get("/rules")
def rules(request: Request, token: _Viewer, after: str = "", find: str = "") -> Response:
    """Return a page of the list of rules."""
    return _page(
        request, token, "rules", run_for_caller(request, lambda runtime: values.rules(runtime, after, find.strip()))
    )


@router.get("/rules/{name}")
@reads_store
def rule(request: Request, token: _Viewer, name: str) -> Response:
    """Return the page of one rule."""
    return _page(request, token, "rule", run_for_caller(request, lambda runtime: values.rule(runtime, request, name)))


@router.get("/targets")
def targets(request: Request, token: _Viewer, after: str = "", find: str = "") -> Response:
    """Return a page of the list of targets; the first page begins with the unhealthy ones."""
    return _page(
        request, token, "targets", run_for_caller(request, lambda runtime: values.targets(runtime, after, find.strip()))
    )


@router.get("/targets/{rule}/{name}")
@reads_store
def target(request: Request, token: _Viewer, rule: str, name: str) -> Response:
    """Return the state and the throughput of one target of a rule."""
    return _page(
        request,
        token,
        "target",
        run_for_caller(request, lambda runtime: values.target(runtime, request, rule, name)),
    )


@router.get("/dead-letters")
@reads_store
def dead_letters(request: Request, token: _Viewer, query: Annotated[DeadLetterQuery, Depends()]) -> Response:
    """Return dead letters, in groups and as a list."""
    return _page(
        request,
        token,
        "dead_letters",
        run_for_caller(request, lambda runtime: values.dead_letters(runtime, request, query)),
    )


@router.get("/dead-letters/{name:path}")
@reads_store
def dead_letter(request: Request, token: _Viewer, name: str) -> Response:
    """Return the page of one dead letter."""
    return _page(
        request,
        token,
        "dead_letter",
        run_for_caller(request, lambda runtime: values.dead_letter(runtime, request, name)),
    )


@own_login.get("/login")
def login(request: Request) -> Response:
    """Return the login form."""
    return render(request, "login", {"message": ""})


@own_login.post("/login")
async def log_in(request: Request) -> Response:
    """Set the cookie with the token. Raises NotLoggedIn unless the token has the `read` scope."""
    check_origin(request)
    secret = (await read_form(request, _MAX_FORM_BYTES)).get("token", "").strip()
    await token_of(request, secret)
    response = redirect_to(request, "")
    keep(response, request, secret)
    return response


@own_login.post("/logout")
def log_out(request: Request) -> Response:
    """Delete the cookie with the token."""
    check_origin(request)
    response = redirect_to(request, "/login")
    forget(response, request)
    return response


@router.get("/lag.json")
@asks_buses
def lag(request: Request, token: _Viewer) -> Response:
    """Return the data of the panel on Airflow's home page."""
    return Response(write_document(run_for_caller(request, lag_values)), media_type="application/json")


@router.get("/lag.js")
def lag_panel() -> Response:
    """Return the script of the panel on Airflow's home page."""
    content = files("eventbridge.api.page").joinpath("lag.js").read_bytes()
    return Response(content, media_type="text/javascript", headers={"cache-control": "max-age=300"})


@router.get("/style.css")
def style() -> Response:
    """Return the style sheet."""
    content = files("eventbridge.api.page").joinpath("style.css").read_bytes()
    return Response(content, media_type="text/css", headers={"cache-control": "max-age=300"})


@router.get("/page.js")
def script() -> Response:
    """Return the script of every page."""
    content = files("eventbridge.api.page").joinpath("page.js").read_bytes()
    return Response(content, media_type="text/javascript", headers={"cache-control": "max-age=300"})


@router.get("/theme.js")
def theme() -> Response:
    """Return the script that applies the theme of the page that frames this one."""
    content = files("eventbridge.api.page").joinpath("theme.js").read_bytes()
    return Response(content, media_type="text/javascript", headers={"cache-control": "max-age=300"})


def _page(request: Request, token: Viewer, name: str, values: dict[str, Any]) -> Response:
    return render(request, name, values | {"viewer": token})


_LISTED = 100
#: The maximum numbers of fields of a type, and of changes on a bus, that one page shows.
_FIELDS, _CHANGES = 60, 20
#: The maximum number of fields that a page of fields leaves out; databases and lists have far fewer.
_MAX_OFFSET = 1_000_000


@router.get("/schemas")
def schemas(request: Request, found: _Viewer, bus: str = "", cursor: str = "") -> Response:
    """Return a page of the event types of one bus, or of all buses."""

    def load(runtime: Runtime) -> dict[str, Any]:
        visibility = visibility_of(runtime)
        buses = [name for name in sorted(runtime.rule_set().buses) if visibility.bus(name)]
        chosen = bus or (None if runtime.owners is None else next(iter(buses), None))
        page = schema_page(runtime, _LISTED, cursor or None, chosen) if chosen or runtime.owners is None else None
        return {"buses": buses, "bus": chosen or "", "page": page}

    return render(request, "schemas", {"viewer": found} | run_for_caller(request, load))


@router.get("/schemas/{type:path}")
def schema(
    request: Request, found: _Viewer, type: str, after: Annotated[int, Query(ge=0, le=_MAX_OFFSET)] = 0
) -> Response:
    """Return a page of the fields of a type on each bus: types, null rates, examples, changes, and the rules that use
    them.
    """

    def load(runtime: Runtime) -> dict[str, Any]:
        known = schemas_named(runtime, type, examples=can_see_payloads(request))
        fields = [(each, field) for each in known for field in each.fields]
        shown = fields[after : after + _FIELDS]
        parts = [
            (
                each,
                [field for of, field in shown if of is each],
                newest_changes(each, _CHANGES),
                *field_users(runtime, each),
            )
            for each in known
            if any(of is each for of, _ in shown)
        ]
        return {"parts_of": parts, "following": after + _FIELDS if len(fields) > after + _FIELDS else None}

    values = {"viewer": found, "type": type, "hidden": "" if can_see_payloads(request) else HIDDEN, "most": MAX_RULES}
    return render(request, "schema", values | run_for_caller(request, load))
