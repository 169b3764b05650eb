"""Who looks at the page: a token in a cookie that no script can read, put there by a form."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import Request, Response

from eventbridge.api.access import Access, check_general_scope
from eventbridge.api.refusal import Refused, believed
from eventbridge.model.api_token import READ, ApiToken

COOKIE = "eventbridge_token"
#: How long a browser keeps the token, if it is not revoked before.
KEPT_SECONDS = 12 * 3600


class NotLoggedIn(Exception):
    """The browser shows no token that may look; `said` is why."""

    def __init__(self, said: str = "") -> None:
        super().__init__(said)
        self.said = said


async def viewer(request: Request) -> ApiToken:
    """Return the token of the browser; raises NotLoggedIn without one that may look."""
    secret = request.cookies.get(COOKIE)
    if secret is None:
        raise NotLoggedIn
    return await token_of(request, secret)


async def token_of(request: Request, secret: str) -> ApiToken:
    """Return a token that may look; raises NotLoggedIn with the reason for any other."""
    access: Access = request.app.state.access
    try:
        token = await access.caller(secret)
        check_general_scope(token, READ)
    except Refused as error:
        raise NotLoggedIn(error.detail) from None
    believed(request)
    return token


def check_origin(request: Request) -> None:
    """Raise Refused for a form that another site sent: a browser says where a form comes from."""
    site = request.headers.get("sec-fetch-site")
    if site != "same-origin" if site is not None else not _is_own(request):
        raise Refused(HTTPStatus.FORBIDDEN, "This form was sent by another site. Nothing was changed")


def _is_own(request: Request) -> bool:
    """Return whether `Origin` names this server; a program that sends none is not a browser on another site."""
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:  # it is not a URL
        return False


def keep(response: Response, request: Request, secret: str) -> None:
    """Let the browser keep a token: for the page only, for no script, sent with no request of another site."""
    response.set_cookie(
        COOKIE,
        secret,
        max_age=KEPT_SECONDS,
        path=root(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def forget(response: Response, request: Request) -> None:
    """Let the browser forget its token."""
    response.delete_cookie(COOKIE, path=root(request), httponly=True, samesite="strict")


def root(request: Request) -> str:
    """Return the path below which the page lies, also where another server mounts it."""
    return f"{request.scope.get('root_path', '')}/page"
