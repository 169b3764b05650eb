"""Who calls: a bearer token, what it allows, and how soon it counts that one was revoked."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from eventbridge.api.buses import BELIEVED_SECONDS
from eventbridge.api.owners import limit
from eventbridge.api.payloads import show_payloads
from eventbridge.api.refusal import Refused, believed
from eventbridge.model.api_token import PAYLOADS, PREFIX, READ, ApiToken
from eventbridge.stages.operate.api_tokens import valid_token
from eventbridge.stages.runtime.runtime import Runtime

_SCHEME = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    bearerFormat="ebt_...",
    description="A token that `eventbridge tokens create` printed, with a scope for what is called.",
)


class Access:
    """Recognises tokens; one that was valid is believed for two seconds, so that not every call asks the ledger."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, tuple[ApiToken, float]] = {}

    async def caller(self, secret: str) -> ApiToken:
        """Return the token of a caller; raises Refused for one that is none, or is revoked or expired."""
        token, seen_at = self._known.get(secret, (None, 0.0))
        if token is None or time.monotonic() - seen_at > BELIEVED_SECONDS:
            token = await asyncio.to_thread(valid_token, self._runtime, secret)
            if token is None:
                self._known.pop(secret, None)
                raise _unauthorized("The token is unknown, revoked or expired. Make one: eventbridge tokens create")
            self._known[secret] = token, time.monotonic()
        return token


async def credentials_of(request: Request) -> HTTPAuthorizationCredentials | None:
    """Return the bearer token that a call brings, None without one."""
    return await _SCHEME(request)


async def caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
) -> ApiToken:
    """Return the token of a call; raises Refused without one."""
    if credentials is None:
        raise _unauthorized("The call has no token. Send it as Authorization: Bearer ebt_...")
    access: Access = request.app.state.access
    secret = credentials.credentials
    # A server around this one knows its own users; a token of ours counts there too.
    token = await (access.caller(secret) if secret.startswith(PREFIX) else _user(request, access, secret))
    believed(request)
    limit(request, token.owners)
    show_payloads(request, PAYLOADS in token.scopes)
    return token


async def _user(request: Request, access: Access, secret: str) -> ApiToken:
    """Return what a user may do of the server around this one; without one, what a token may that is none of ours."""
    known = await request.app.state.gate.user(request)
    if known is None:
        return await access.caller(secret)
    request.state.who = f"user {known.name}"
    token: ApiToken = known
    return token


def who(request: Request, token: ApiToken) -> str:
    """Return who calls, as it is noted with what is done."""
    return str(getattr(request.state, "who", f"token {token.name}"))


def check_scope(token: ApiToken, action: str, bus: str) -> None:
    """Raise Refused if a token does not allow an action on a bus."""
    if not token.allows(action, bus):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"The token {token.name!r} has no scope {action}:{bus}. It has {', '.join(token.scopes)}",
        )


async def reader(request: Request, token: Annotated[ApiToken, Depends(caller)]) -> ApiToken:
    """Return the token of a call that only looks; raises Refused without the scope."""
    check_general_scope(token, READ)
    return token


def check_general_scope(token: ApiToken, scope: str) -> None:
    """Raise Refused if a token does not have a scope that is of no bus."""
    if scope not in token.scopes:
        raise Refused(
            HTTPStatus.FORBIDDEN, f"The token {token.name!r} has no scope {scope}. It has {', '.join(token.scopes)}"
        )


def _unauthorized(detail: str) -> Refused:
    return Refused(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer"})
