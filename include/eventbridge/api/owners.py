"""Callers that are limited to owners: the routes they may call, and their view of the installation."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from fastapi import Request

from eventbridge.api.refusal import CallRefused
from eventbridge.model.api import PUBLISH, ApiToken
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime

_RULE = "/rules/{rule}"
_TARGET = "/targets/{rule}/{target}"
#: Routes that leave out everything of other owners. All other routes cover every owner, and are refused.
OWNER_ROUTES = frozenset(
    {
        *("/status", "/buses", "/buses/{bus}", "/stats", "/schemas", "/schemas/{type:path}"),
        *(
            "/rules",
            _RULE,
            f"{_RULE}/versions",
            f"{_RULE}/test",
            f"{_RULE}/shadows",
            f"{_RULE}/release",
            "/operate",
            "/rules/check",
        ),
        *("/targets", _TARGET, f"{_TARGET}/check", f"{_TARGET}/send", f"{_TARGET}/enable"),
        *("/dead-letters", "/dead-letter-groups", "/dead-letters/{name:path}", "/events", "/events/{event_id:path}"),
        *("/redrives", "/redrives/{redrive}/cancel", "/replays", "/replays/{replay}", "/replays/{replay}/{word}"),
        *("/page", "/page/lag.json", "/page/event", "/page/events", "/page/request", "/page/rules"),
        *("/page/rules/{name}", "/page/rules/{name}/operate", "/page/rules/{name}/test"),
        *("/page/schemas", "/page/schemas/{type:path}"),
        *("/page/targets", "/page/targets/{rule}/{name}", "/page/targets/{rule}/{name}/try"),
        *("/page/dead-letters", "/page/dead-letters/{name:path}"),
        *("/page/redrive", "/page/redrives", "/page/redrives/{redrive_id}/cancel"),
        *("/page/replay", "/page/replays", "/page/replays/{replay_id}", "/page/replays/{replay_id}/{word}"),
    }
)


def limit_to_owners(request: Request, owners: Collection[str] | None) -> None:
    """Record the owners whose rules and buses the caller of a request may see; None: all."""
    request.state.owners = owners


def visible_to_caller(request: Request, runtime: Runtime) -> Runtime:
    """Return the installation as the caller may see it; raises CallRefused on a route that covers every owner."""
    owners: Collection[str] | None = getattr(request.state, "owners", None)
    if owners is None:
        return runtime
    if getattr(request.scope.get("route"), "path", "") not in OWNER_ROUTES:
        named = ", ".join(sorted(owners)) or "nobody"
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"This covers the rules of every owner, and you may only see those of {named}. Use a token without owners "
            "or, in Airflow, ask for the right to see all rules",
        )
    return runtime.seen_by(owners)


def check_publishes(token: ApiToken, bus: Bus) -> None:
    """Raise CallRefused if a token that is limited to owners may not publish to a bus.

    It may publish to buses of its owners and, if its scope names the bus, to buses without an owner.
    """
    if token.owners is None or bus.owner in token.owners:
        return
    if bus.owner is None and f"{PUBLISH}:{bus.name}" in token.scopes:
        return
    raise CallRefused(
        HTTPStatus.FORBIDDEN,
        f"The token {token.name!r} belongs to {', '.join(token.owners)}, and the bus {bus.name!r} to "
        f"{bus.owner or 'no owner. Name the bus in the scope of the token'}",
    )
