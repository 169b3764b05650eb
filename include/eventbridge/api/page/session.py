"""Who looks at the page: a token in a cookie that no script can read, or the user of a server around it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, Protocol
from urllib.parse import urlsplit

from fastapi import Request, Response

from eventbridge.api.access import Access, check_general_scope
from eventbridge.api.owners import limit
from eventbridge.api.payloads import show_payloads
from eventbridge.api.refusal import Refused, believed
from eventbridge.model.api_token import OPERATE, PAYLOADS, READ, ApiToken
from eventbridge.model.batch import Batch
from eventbridge.model.recorded import RECORDED

COOKIE = "eventbridge_token"
#: What is recorded first and then delivered, batch by batch.
Asked = Literal["redrive", "replay"]
#: How long a browser keeps the token, if it is not revoked before.
KEPT_SECONDS = 12 * 3600


class NotLoggedIn(Exception):
    """The browser has not shown who may look; `said` is why, `login` the page of another server that asks for it."""

    def __init__(self, said: str = "", login: str = "") -> None:
        super().__init__(said)
        self.said = said
        self.login = login


@dataclass(frozen=True)
class Viewer:
    """Who looks at the page: `form_key` is in each of its forms, and no other site knows it.

    `replays`: may have archived events delivered again, `backtests`: have rules run over them. `logs_out`: the page
    itself keeps the login, so that it has a button to end it. `owners`: whose rules and buses are shown, `acts_for`:
    whose may be changed; None: everybody's. `payloads`: may see events, requests and responses.
    """

    name: str
    form_key: str
    operates: bool = False
    replays: bool = False
    backtests: bool = False
    logs_out: bool = True
    payloads: bool = False
    owners: frozenset[str] | None = None
    acts_for: frozenset[str] | None = None


@dataclass(frozen=True)
class AirflowRun:
    """A run of a DAG."""

    dag_id: str
    run_id: str


class Gate(Protocol):
    """Says who looks at the page, and what the server around it knows."""

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return the DAG runs that moved a batch, the first one first; none where Airflow is not around the page."""
        ...

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return the batch that a DAG run moved, if there is one."""
        ...

    @property
    def recorded(self) -> str:
        """Return what the names of redrives and replays begin with that are recorded here."""
        ...

    async def viewer(self, request: Request) -> Viewer:
        """Return who looks; raises NotLoggedIn, Refused for somebody who may not."""
        ...

    async def user(self, request: Request) -> ApiToken | None:
        """Return what may be done by who shows a bearer of the server around this one; None: there is no such server.

        Raises Refused, HTTPException for a bearer that counts nothing.
        """
        ...

    async def backtest(self, conf: Mapping[str, str], by: str) -> str:
        """Have a rule run over the archive, or with `a` and `b` two compared; return what keeps it from that, or ""."""
        ...

    async def carry_out(self, asked: Asked, name: str, by: str) -> str:
        """Have a redrive or replay of this id delivered, which is recorded; return what keeps it from that, or ""."""
        ...


class TokenGate:
    """The page's own login: a token of the API in a cookie."""

    recorded = RECORDED

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return none: this server knows of no Airflow."""
        return []

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return none: this server knows of no Airflow."""
        return None

    async def viewer(self, request: Request) -> Viewer:
        """Return who looks; raises NotLoggedIn without a token that may look."""
        secret = request.cookies.get(COOKIE)
        if secret is None:
            raise NotLoggedIn
        token = await token_of(request, secret)
        operates = OPERATE in token.scopes
        owners = None if token.owners is None else frozenset(token.owners)
        key = hashlib.sha256(f"form of {secret}".encode()).hexdigest()
        payloads = PAYLOADS in token.scopes
        return Viewer(token.name, key, operates, operates, payloads=payloads, owners=owners, acts_for=owners)

    async def user(self, request: Request) -> ApiToken | None:
        """Return None: this server has no users beside tokens."""
        return None

    async def backtest(self, conf: Mapping[str, str], by: str) -> str:
        """Return that it cannot: this server knows of no Airflow, and has no Spark."""
        return "This server has no Spark: `eventbridge rules backtest` does it"

    async def carry_out(self, asked: Asked, name: str, by: str) -> str:
        """Leave it to the command that the page names: this server never delivers."""
        return ""


async def viewer(request: Request) -> Viewer:
    """Return who looks at the page; raises NotLoggedIn, Refused."""
    gate: Gate = request.app.state.gate
    found = await gate.viewer(request)
    believed(request)
    request.state.viewer = found
    limit(request, found.owners)
    show_payloads(request, found.payloads)
    return found


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


def check_origin(request: Request, *, proven: bool = False) -> None:
    """Raise Refused for a form that another site sent: a browser says where a form comes from.

    `proven`: also for a form of which nothing says where it comes from.
    """
    site = request.headers.get("sec-fetch-site")
    said = site is not None or "origin" in request.headers or not proven
    if not said or (site != "same-origin" if site is not None else not _is_own(request)):
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
        secure=_is_https(request),
        httponly=True,
        samesite="strict",
    )


def _is_https(request: Request) -> bool:
    """Return whether the browser's own request was encrypted, also where a proxy before this server ends TLS."""
    headers = request.headers
    forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return (
        request.url.scheme == "https" or forwarded == "https" or headers.get("origin", "").lower().startswith("https:")
    )


def forget(response: Response, request: Request) -> None:
    """Let the browser forget its token."""
    response.delete_cookie(COOKIE, path=root(request), httponly=True, samesite="strict")


def root(request: Request) -> str:
    """Return the path below which the page lies, also where another server mounts it."""
    return f"{request.scope.get('root_path', '')}/page"
