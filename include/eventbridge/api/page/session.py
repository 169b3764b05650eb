"""Logs users in to the page, either by a token in a cookie that no script can read, or as users of the mounting
server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Literal, Protocol
from urllib.parse import urlsplit

from fastapi import Request, Response

from eventbridge.api.access import Access, check_general_scope, limit_to_matched_events, limit_to_owners
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.attention import attention
from eventbridge.api.payloads import set_payloads_right
from eventbridge.api.refusal import CallRefused, mark_authenticated
from eventbridge.model.api import OPERATE, PAYLOADS, READ, ApiToken
from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import RECORDED

COOKIE = "eventbridge_token"
#: The kind of a request that is recorded first, and then delivered batch by batch.
RequestKind = Literal["redrive", "replay"]
#: The time for which a browser keeps the cookie with the token.
KEPT_SECONDS = 12 * 3600


class NotLoggedIn(Exception):
    """The browser is not logged in; `message` is the reason, and `login` is the login page of the mounting server."""

    def __init__(self, message: str = "", login: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.login = login


@dataclass(frozen=True)
class Viewer:
    """A user of the page; each form contains `form_key`, which other sites do not know.

    `can_replay` and `can_backtest` are the rights to start replays and backtests, `can_see_payloads` is the right to
    see events, requests and responses. If `can_log_out`, the page itself keeps the login, and has a button to log out.
    `owners` are the owners whose rules and buses are shown, and `acts_for` are those whose rules and buses may be
    changed;
    None means all. If `is_portal`, the user has a link to the portal, which is valid until `expires_at`.
    """

    name: str
    form_key: str
    can_operate: bool = False
    can_replay: bool = False
    can_backtest: bool = False
    can_log_out: bool = True
    can_see_payloads: bool = False
    owners: frozenset[str] | None = None
    acts_for: frozenset[str] | None = None
    is_portal: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True)
class AirflowRun:
    """A run of a DAG."""

    dag_id: str
    run_id: str


class Gate(Protocol):
    """Authenticates users of the page, and connects it to the server that mounts it."""

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return the DAG runs of a batch, the earliest first; none if Airflow does not mount the page."""
        ...

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return the batch of a DAG run, or None if it has none."""
        ...

    @property
    def recorded_prefix(self) -> str:
        """Return the prefix of the names under which this server records redrives and replays."""
        ...

    async def viewer(self, request: Request) -> Viewer:
        """Return the user. Raises NotLoggedIn, or CallRefused for a user who may not see the page."""
        ...

    async def rights_of_user(self, request: Request) -> ApiToken | None:
        """Return the rights of a bearer token that is valid at the server that mounts this one, or None if there is no
        such server.

        Raises CallRefused or HTTPException for an invalid token.
        """
        ...

    async def backtest(self, run_conf: Mapping[str, str], by: str) -> str:
        """Start a backtest of a `candidate`, or a comparison of `a` and `b`; return the error, or ""."""
        ...

    async def carry_out(self, kind: RequestKind, name: str, by: str) -> str:
        """Start the delivery of a recorded redrive or replay; return the error, or ""."""
        ...


class TokenGate:
    """The page's own login, with an API token in a cookie."""

    recorded_prefix = RECORDED

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return no runs, because this server has no Airflow."""
        return []

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return None, because this server has no Airflow."""
        return None

    async def viewer(self, request: Request) -> Viewer:
        """Return the user. Raises NotLoggedIn without a token that has the `read` scope."""
        secret = request.cookies.get(COOKIE)
        if secret is None:
            raise NotLoggedIn
        token = await token_of(request, secret)
        operates = OPERATE in token.scopes
        owners = None if token.owners is None else frozenset(token.owners)
        payloads = PAYLOADS in token.scopes
        return Viewer(
            token.name, form_key(secret), operates, operates, can_see_payloads=payloads, owners=owners, acts_for=owners
        )

    async def rights_of_user(self, request: Request) -> ApiToken | None:
        """Return None, because this server has tokens but no users."""
        return None

    async def backtest(self, run_conf: Mapping[str, str], by: str) -> str:
        """Return an error, because this server has neither Airflow nor Spark."""
        return "This server has no Spark. Use `eventbridge rules backtest`"

    async def carry_out(self, kind: RequestKind, name: str, by: str) -> str:
        """Do nothing, because this server never delivers events; the page shows the command that does."""
        return ""


def form_key(secret: str) -> str:
    """Return the key that the forms of a login contain, which is as secret as its token."""
    return hashlib.sha256(f"form of {secret}".encode()).hexdigest()


async def viewer(request: Request) -> Viewer:
    """Return the user of the page. Raises NotLoggedIn, or CallRefused for a user who may not see it."""
    gate: Gate = request.app.state.gate
    found = await gate.viewer(request)
    mark_authenticated(request, sees_failures=not found.is_portal)
    if found.is_portal:
        limit_to_matched_events(request)
    request.state.viewer = found
    limit_to_owners(request, found.owners)
    set_payloads_right(request, found.can_see_payloads)
    request.state.attention = await asyncio.to_thread(run_for_caller, request, attention)
    return found


async def token_of(request: Request, secret: str) -> ApiToken:
    """Return a token with the `read` scope. Raises NotLoggedIn with the reason for any other."""
    access: Access = request.app.state.access
    try:
        token = await access.caller(secret)
        check_general_scope(token, READ)
    except CallRefused as error:
        raise NotLoggedIn(error.detail) from None
    mark_authenticated(request)
    return token


def check_origin(request: Request, *, proven: bool = False) -> None:
    """Raise CallRefused for a form that another site sent, judged by the headers that name a form's origin.

    If `proven`, a form without such a header is refused too.
    """
    site = request.headers.get("sec-fetch-site")
    is_stated = site is not None or "origin" in request.headers or not proven
    if not is_stated or (site != "same-origin" if site is not None else not _is_own(request)):
        raise CallRefused(HTTPStatus.FORBIDDEN, "This form was sent by another site. Nothing was changed")


def _is_own(request: Request) -> bool:
    """Return whether `Origin` names this server, or is missing; only programs other than browsers omit it."""
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:  # not a URL
        return False


def keep(response: Response, request: Request, secret: str) -> None:
    """Set the cookie with the token: for the page only, hidden from scripts, not sent from other sites."""
    response.set_cookie(
        COOKIE,
        secret,
        max_age=KEPT_SECONDS,
        path=root(request),
        secure=is_https(request),
        httponly=True,
        samesite="strict",
    )


def is_https(request: Request) -> bool:
    """Return whether the browser's request was encrypted, even if a proxy terminates TLS."""
    headers = request.headers
    forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return (
        request.url.scheme == "https" or forwarded == "https" or headers.get("origin", "").lower().startswith("https:")
    )


def forget(response: Response, request: Request) -> None:
    """Delete the cookie with the token."""
    response.delete_cookie(COOKIE, path=root(request), httponly=True, samesite="strict")


def root(request: Request) -> str:
    """Return the root path of the page, with the prefix of a server that mounts it."""
    return f"{request.scope.get('root_path', '')}/page"
