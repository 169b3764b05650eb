"""Authenticates callers by their bearer tokens, and checks their scopes and their limit to owners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from eventbridge.api.buses import CACHED_SECONDS
from eventbridge.api.payloads import set_payloads_right
from eventbridge.api.refusal import CallRefused, mark_authenticated
from eventbridge.control.api_tokens import valid_token
from eventbridge.model.api import PAYLOADS, PORTAL, PUBLISH, READ, TOKEN_PREFIX, V1, ApiToken
from eventbridge.rules import RuleSet
from eventbridge.rules.find import find_bus
from eventbridge.runtime.runtime import Runtime

_SCHEME = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    bearerFormat="ebt_...",
    description="A token from `eventbridge tokens create`, with the scope that the call needs.",
)


class Access:
    """Looks tokens up in the ledger, and caches valid ones for two seconds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, tuple[ApiToken, float]] = {}

    async def caller(self, secret: str) -> ApiToken:
        """Return the token with this secret. Raises CallRefused if it is unknown, revoked or expired."""
        token, seen_at = self._known.get(secret, (None, 0.0))
        if token is None or time.monotonic() - seen_at > CACHED_SECONDS:
            token = await asyncio.to_thread(valid_token, self._runtime, secret)
            if token is None:
                self._known.pop(secret, None)
                raise _unauthorized(
                    "The token is unknown, revoked or expired. Create one: eventbridge tokens create", "token_invalid"
                )
            self._known[secret] = token, time.monotonic()
        return token


async def credentials_of(request: Request) -> HTTPAuthorizationCredentials | None:
    """Return the bearer token of a call, or None if it has none."""
    return await _SCHEME(request)


async def caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
) -> ApiToken:
    """Return the token of a call. Raises CallRefused if the call has no valid token."""
    if credentials is None:
        raise _unauthorized("The call has no token. Send it as Authorization: Bearer ebt_...", "token_required")
    access: Access = request.app.state.access
    secret = credentials.credentials
    # Where another server mounts this application, that server's users are accepted too.
    token = await (access.caller(secret) if secret.startswith(TOKEN_PREFIX) else _user(request, access, secret))
    if PORTAL in token.scopes:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"The token {token.name!r} opens the portal in a browser, and may make no call of the API. Create a token "
            "for the program: eventbridge tokens create NAME --scope read",
            code="scope_required",
        )
    mark_authenticated(request, sees_rules=READ in token.scopes)
    limit_to_owners(request, token.owners)
    set_payloads_right(request, PAYLOADS in token.scopes)
    return token


async def _user(request: Request, access: Access, secret: str) -> ApiToken:
    """Return the rights of a mounting server's user; if no server mounts this one, look up the token."""
    known = await request.app.state.gate.rights_of_user(request)
    if known is None:
        return await access.caller(secret)
    request.state.caller_name = f"user {known.name}"
    token: ApiToken = known
    return token


def caller_name(request: Request, token: ApiToken) -> str:
    """Return the name of the caller, as the log of actions records it."""
    return str(getattr(request.state, "caller_name", f"token {token.name}"))


def check_scope(token: ApiToken, action: str, name: str) -> None:
    """Raise CallRefused if the token has no scope for an action on a bus or queue."""
    if not token.allows(action, name):
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"The token {token.name!r} has no scope {action}:{name}. It has {', '.join(token.scopes)}",
            code="scope_required",
        )


async def reader(request: Request, token: Annotated[ApiToken, Depends(caller)]) -> ApiToken:
    """Return the token of a call that only reads. Raises CallRefused if it has no `read` scope."""
    check_general_scope(token, READ)
    return token


def check_general_scope(token: ApiToken, scope: str) -> None:
    """Raise CallRefused if the token lacks a scope that applies to no single bus, such as `read`."""
    if scope not in token.scopes:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"The token {token.name!r} has no scope {scope}. It has {', '.join(token.scopes)}",
            code="scope_required",
        )


def _unauthorized(detail: str, code: str) -> CallRefused:
    return CallRefused(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer"}, code=code)


_RULE = "/rules/{rule}"
_TARGET = "/targets/{rule}/{target}"
_OWNER_CALLS = (
    *("/status", "/buses", "/buses/{bus}", "/stats", "/schemas", "/schemas/{type:path}", "/rules", "/rules/check"),
    "/patterns/test",  # only for agents, see `eventbridge.mcp.api`
    *(_RULE, f"{_RULE}/versions", f"{_RULE}/test", f"{_RULE}/shadows", f"{_RULE}/release", f"{_RULE}/priority"),
    *(f"{_RULE}/{verb}" for verb in ("pause", "resume", "disable", "enable")),
    *("/targets", _TARGET, f"{_TARGET}/rate"),
    *(f"{_TARGET}/{verb}" for verb in ("check", "send", "enable", "pause", "resume")),
    *("/dead-letters", "/dead-letter-groups", "/dead-letters/{name:path}", "/events", "/events/{event_id:path}"),
    *("/redrives", "/redrives/{redrive}", "/redrives/{redrive}/cancel", "/replays", "/replays/{replay}"),
    *(f"/replays/{{replay}}/{verb}" for verb in ("pause", "resume", "cancel")),
    *("/queues", *(f"/queues/{{queue}}/{verb}" for verb in ("receive", "acknowledge", "extend", "release"))),
)
#: The routes that omit what belongs to other owners. All other routes cover every owner, and refuse callers that are
#: limited to owners.
OWNER_ROUTES = frozenset(
    {
        *(V1 + path for path in _OWNER_CALLS),
        *(
            "/page",
            "/page/errors",
            "/page/api",
            "/page/lag.json",
            "/page/event",
            "/page/events",
            "/page/find",
            "/page/events/export",
            "/page/request",
            "/page/rules",
        ),
        *("/page/rules/{name}", "/page/rules/{name}/operate", "/page/rules/{name}/test"),
        *("/page/schemas", "/page/schemas/{type:path}"),
        *("/page/buses", "/page/targets", "/page/targets/{rule}/{name}", "/page/targets/{rule}/{name}/try"),
        *("/page/dead-letters", "/page/dead-letters/{name:path}"),
        *("/page/redrive", "/page/redrives", "/page/redrives/{redrive_id}/cancel"),
        *("/page/replay", "/page/replays", "/page/replays/{replay_id}", "/page/replays/{replay_id}/{word}"),
    }
)


def limit_to_owners(request: Request, owners: Collection[str] | None) -> None:
    """Record the owners whose rules and buses the caller of a request may see; None means all owners."""
    request.state.owners = owners


def limit_to_matched_events(request: Request) -> None:
    """Of buses of other owners, show the caller only the events that rules of the caller's owners have matched."""
    request.state.only_matched = True


def visible_to_caller(request: Request, runtime: Runtime) -> Runtime:
    """Return what the caller may see of the installation. Raises CallRefused on a route that covers every owner."""
    owners: Collection[str] | None = getattr(request.state, "owners", None)
    if owners is None:
        return runtime
    if getattr(request.scope.get("route"), "path", "") not in OWNER_ROUTES:
        named = ", ".join(sorted(owners)) or "none"
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"This call covers the rules of every owner, but you may see only the rules of these owners: {named}. "
            "Use a token without owners or, in Airflow, ask for the right to see all rules",
            code="owner_required",
        )
    return runtime.restrict_to_owners(owners, only_matched=getattr(request.state, "only_matched", False))


def check_publishes(token: ApiToken, name: str, rules: RuleSet) -> None:
    """Raise CallRefused if a token that is limited to owners may not publish to a bus.

    The token may publish to buses of its owners and, if one of its scopes names the bus, to a bus without an owner.
    Raises NotFoundError if the bus does not exist, or if it belongs to another owner and no rule of the token's owners
    takes events from it.
    """
    if token.owners is None:
        return
    is_named = f"{PUBLISH}:{name}" in token.scopes
    known = rules.buses.get(name)
    if known is not None and (known.owner in token.owners or (known.owner is None and is_named)):
        return
    bus = find_bus(rules.owned_by(token.owners), name)
    raise CallRefused(
        HTTPStatus.FORBIDDEN,
        f"The token {token.name!r} belongs to {', '.join(token.owners)}, and the bus {bus.name!r} to "
        f"{bus.owner or 'no owner. Name the bus in the scope of the token'}",
        code="owner_required",
    )
