"""Serves the portal: the pages of one owner, for people outside the team, who open them by a link.

The link is reusable until its token expires or is revoked: chat programs and mail filters open each link that they see,
and an iframe opens its link at every load, so that a link for one use would be used up before its reader comes. The
token is the fragment of the link. Browsers send it to no server, so neither logs nor Referer headers have it. A script
takes it out of the address and posts it; the session is a cookie that no script can read.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute

from eventbridge.api.access import Access
from eventbridge.api.page.forms import read_form, redirect_to
from eventbridge.api.page.render import render
from eventbridge.api.page.session import (
    KEPT_SECONDS,
    NotLoggedIn,
    TokenGate,
    Viewer,
    check_origin,
    form_key,
    is_https,
    root,
)
from eventbridge.api.refusal import CallRefused
from eventbridge.model.api import OPERATE, PAYLOADS, PORTAL, ApiToken

COOKIE: Final = "eventbridge_portal"
#: The routes of the page that the portal has. Each shows and changes only what belongs to the owner of the session.
PAGES: Final = frozenset(
    {
        *("/page", "/page/find", "/page/style.css", "/page/page.js"),
        *("/page/events", "/page/event", "/page/request"),
        *("/page/rules", "/page/rules/{name}", "/page/rules/{name}/operate", "/page/rules/{name}/test"),
        *("/page/targets", "/page/targets/{rule}/{name}", "/page/targets/{rule}/{name}/try"),
        *("/page/dead-letters", "/page/dead-letters/{name:path}"),
        *("/page/redrive", "/page/redrives", "/page/redrives/{redrive_id}/cancel"),
    }
)
_MAX_FORM_BYTES: Final = 4_096
_OVER: Final = "The link is unknown, revoked or expired. Ask the team that gave it to you for a new one"

_router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)


class PortalGate(TokenGate):
    """The sessions of the portal: a token with the scope `portal`, in a cookie of its own."""

    async def viewer(self, request: Request) -> Viewer:
        """Return the user. Raises NotLoggedIn without a session, or if its link has expired or was revoked."""
        secret = request.cookies.get(COOKIE)
        if secret is None:
            raise NotLoggedIn(
                "You have no session. Open the link that you were given. If the link leads here again, the browser "
                "did not store the session: within another page, it does so over HTTPS only"
            )
        token = await _token_of(request, secret)
        owners = frozenset(token.owners or ())
        operates = OPERATE in token.scopes
        return Viewer(
            token.name,
            form_key(secret),
            can_operate=operates,
            can_see_payloads=PAYLOADS in token.scopes,
            owners=owners,
            acts_for=owners if operates else frozenset(),
            is_portal=True,
            expires_at=token.expires_at,
        )


async def _token_of(request: Request, secret: str) -> ApiToken:
    access: Access = request.app.state.access
    try:
        token = await access.caller(secret)
    except CallRefused:
        raise NotLoggedIn(_OVER) from None
    if PORTAL not in token.scopes or not token.owners:
        raise NotLoggedIn(_OVER)
    return token


def add_portal(app: FastAPI, bare: FastAPI, pages: Iterable[APIRouter]) -> FastAPI:
    """Mount the portal, below `/portal`, as an application of its own without any other route, and return it."""
    own = APIRouter()
    own.routes = [each for part in pages for each in part.routes if isinstance(each, APIRoute) and each.path in PAGES]
    bare.include_router(own)
    bare.include_router(_router)
    bare.state.gate = PortalGate()
    bare.state.offered = [each.path_regex for each in own.routes if isinstance(each, APIRoute)]
    app.mount("/portal", bare)
    return bare


@_router.get("/open")
def form_to_open(request: Request) -> Response:
    """Return the page that takes the token out of the link's fragment, and posts it."""
    return render(request, "portal_open", {"message": ""})


@_router.post("/open")
async def open_portal(request: Request) -> Response:
    """Begin a session with the token of a link. Raises NotLoggedIn for any other token."""
    check_origin(request)
    secret = (await read_form(request, _MAX_FORM_BYTES)).get("token", "").strip()
    token = await _token_of(request, secret)
    now = request.app.state.runtime.clock()
    left = KEPT_SECONDS if token.expires_at is None else int((token.expires_at - now).total_seconds())
    response = redirect_to(request, "")
    _set_cookie(response, request, secret, min(KEPT_SECONDS, left))
    return response


@_router.post("/logout")
def log_out(request: Request) -> Response:
    """End the session of this browser."""
    check_origin(request)
    response = redirect_to(request, "/open")
    _set_cookie(response, request, "", 0)
    return response


@_router.get("/portal.js")
def script() -> Response:
    """Return the script that posts the token of a link."""
    content = files("eventbridge.api.page").joinpath("portal.js").read_bytes()
    return Response(content, media_type="text/javascript", headers={"cache-control": "max-age=300"})


@_router.api_route("/{path:path}", methods=["GET", "POST"])
async def refuse_other(request: Request, path: str) -> Response:
    """Raise CallRefused: the portal has no such page."""
    request.state.viewer = found = await PortalGate().viewer(request)
    named = ", ".join(sorted(found.owners or ()))
    raise CallRefused(
        HTTPStatus.FORBIDDEN,
        f"The portal has no page {path!r}: it shows the rules, events, targets and dead letters of {named}, and "
        "nothing that concerns others",
        code="owner_required",
    )


def _set_cookie(response: Response, request: Request, secret: str, seconds: int) -> None:
    """Set the cookie of a session. It is sent within pages of other sites only if these may embed the portal.

    Browsers send it there over HTTPS only, and keep it apart for each site that embeds the portal.
    """
    encrypted = is_https(request)
    embedded = encrypted and request.app.state.runtime.settings.portal_origins
    parts = [f"{COOKIE}={secret}", f"Max-Age={seconds}", f"Path={root(request)}", "HttpOnly"]
    parts += ["Secure"] if encrypted else []
    parts += ["SameSite=None", "Partitioned"] if embedded else ["SameSite=Lax"]
    response.headers.append("set-cookie", "; ".join(parts))
