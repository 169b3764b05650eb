"""Checks the heads and limits the bodies of all calls, turns HEAD into GET, and adds headers to every response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventbridge.api.bodies import MAX_BYTES
from eventbridge.api.refusal import CallRefused, problem_response

#: The maximum size of any body, and how long it may take to arrive. Both exceed the limits of publishing calls, which
#: refuse a body with a better message.
MAX_BODY_BYTES = MAX_BYTES + 1024 * 1024
BODY_SECONDS = 40.0

#: The maximum total size of all bodies in progress, counted separately for webhooks, whose callers have no token, and
#: for other calls.
MAX_HELD_BYTES = 256 * 1024 * 1024
_WEBHOOKS = "/v1/hooks/"
#: The header of a refusal after which no more is read of the connection.
_CLOSE: Final = {"connection": "close"}
#: The key, in a request's state, of the function that counts further bytes of the request's body.
_HOLD = "hold"


class _Body:
    """The body of a call in progress: how many bytes of it are held, and whether more may arrive."""

    def __init__(self) -> None:
        self.count = 0
        self.began_at = 0.0
        self.is_complete = False
        self.is_refused = False
        #: The timeout of the current wait for more of the body; None while the call does not wait.
        self.timeout: asyncio.Timeout | None = None

    def cost(self, now: float) -> float:
        """Return what the body has cost: its bytes, multiplied by the seconds since it began."""
        return self.count * (now - self.began_at)

    def refuse(self) -> None:
        """Refuse the body, and end the call's wait for the rest of it."""
        self.is_refused = True
        if self.timeout is not None and not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time())


class _Bodies:
    """The bodies of calls in progress, which hold at most MAX_HELD_BYTES in total."""

    def __init__(self) -> None:
        self._all: set[_Body] = set()
        self._count = 0

    def begin(self) -> _Body:
        """Return the body of a new call."""
        body = _Body()
        self._all.add(body)
        return body

    def add(self, body: _Body, count: int) -> None:
        """Count bytes of a body, and refuse bodies, perhaps this one, until the others are within the limit.

        The incomplete body with the highest cost is refused first, so that a stalled body makes room for later ones
        that arrive in time. If no body is incomplete, the given one is refused.
        """
        body.count += count
        self._count += count
        while self._count > MAX_HELD_BYTES and not body.is_refused:
            now = asyncio.get_running_loop().time()
            incomplete = [each for each in self._all if each.count and not each.is_complete]
            refused = max(incomplete, key=lambda each: each.cost(now), default=body)
            self._release(refused)
            refused.refuse()

    def end(self, body: _Body) -> None:
        """Forget the body of a call that has ended."""
        self._all.discard(body)
        self._release(body)

    def _release(self, body: _Body) -> None:
        self._count -= body.count
        body.count = 0


class BodyLimit:
    """Refuses a body that is larger than 9 MiB or takes longer than 40 seconds, whatever its headers say.

    When all bodies together exceed MAX_HELD_BYTES, those with the highest cost are refused, see `_Bodies`. Webhooks are
    counted separately, so that they cannot block other calls. The framework reads the body of a call before it checks
    the token, so this limit also applies to unknown callers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._of_webhooks, self._of_others = _Bodies(), _Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bodies = self._of_webhooks if scope["path"].startswith(_WEBHOOKS) else self._of_others
        body = bodies.begin()
        scope.setdefault("state", {})[_HOLD] = partial(_count_held_bytes, bodies, body)
        try:
            await self._app(scope, _limit_body(receive, bodies, body), send)
        finally:
            bodies.end(body)


def _limit_body(receive: Receive, bodies: _Bodies, body: _Body) -> Receive:
    async def receive_within_limits() -> Message:
        if body.is_complete:  # the framework waits for the end of the connection
            return await receive()
        body.began_at = body.began_at or asyncio.get_running_loop().time()
        if body.is_refused:
            raise _too_many_bodies()
        try:
            async with asyncio.timeout_at(body.began_at + BODY_SECONDS) as body.timeout:
                message = await receive()
        except TimeoutError:
            raise _too_many_bodies() if body.is_refused else _too_late() from None
        finally:
            body.timeout = None
        count = len(message.get("body", b""))
        body.is_complete = not message.get("more_body", False)
        bodies.add(body, count)
        if body.is_refused:
            raise _too_many_bodies()
        if body.count > MAX_BODY_BYTES:
            detail = f"The body has more than {MAX_BODY_BYTES:,} bytes. Send less in a call"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, _CLOSE)
        return message

    return receive_within_limits


def hold(request: Request, count: int) -> None:
    """Count bytes that were produced from the body of a call, such as a decompressed body, until the call ends.

    At the limit, incomplete bodies of other calls are refused; without any, raises HTTPException (503). Call this in
    the event loop, after the body was read.
    """
    request.scope["state"][_HOLD](count)


def _count_held_bytes(bodies: _Bodies, body: _Body, count: int) -> None:
    bodies.add(body, count)
    if body.is_refused:
        raise _too_many_bodies()


def _too_late() -> HTTPException:
    detail = f"The body did not arrive within {BODY_SECONDS:g} seconds"
    return HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail, _CLOSE)


def _too_many_bodies() -> HTTPException:
    detail = (
        "The server holds too many request bodies, and refuses large ones that arrive slowly first. Nothing was done. "
        "Retry after the delay in Retry-After"
    )
    return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"connection": "close", "retry-after": "5"})


class HeadAsGet:
    """Turns HEAD into GET for the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        # a copy, because the server reads HEAD from its own scope and sends no body
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


class SafeHeaders:
    """Adds `X-Content-Type-Options: nosniff` and, unless the response sets it, `Cache-Control: no-store`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-content-type-options"] = "nosniff"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


#: The headers that decide who makes a call, and whether it is a repetition. A proxy may have checked another one than
#: the one that the server reads.
_SINGLE_HEADERS: Final = ("authorization", "idempotency-key")


class CheckedHeads:
    """Refuses a call whose headers leave in doubt where its body ends, in which form it is, or who makes the call."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        refusal = _refusal_of_head(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(Request(scope), refusal)(scope, receive, send)


def _refusal_of_head(scope: Scope) -> CallRefused | None:
    named: dict[str, list[str]] = {}
    for name, value in Headers(scope=scope).items():
        named.setdefault(name, []).append(value)
    codings = named.get("transfer-encoding", ["chunked"])
    if [each.strip().lower() for each in codings] != ["chunked"]:
        detail = f"The transfer coding {', '.join(codings)[:100]!r} is not supported. Send the body without one, or as "
        detail += "chunked; Content-Encoding can name gzip or deflate. Nothing was done"
        return CallRefused(HTTPStatus.NOT_IMPLEMENTED, detail, _CLOSE)
    if _loses_body(scope, named):
        detail = "The call offers an upgrade to another protocol, so the server may lose its body. Send it without the "
        detail += "header Upgrade: by `curl --http1.1`, or Java's HttpClient with version(HTTP_1_1). Nothing was done"
        return CallRefused(HTTPStatus.BAD_REQUEST, detail, _CLOSE, code="upgrade_refused")
    for name in _SINGLE_HEADERS:
        if len(named.get(name, ())) > 1:
            detail = f"The call has more than one header {name.title()}. Send it once. Nothing was done"
            return CallRefused(HTTPStatus.BAD_REQUEST, detail)
    return None


def _loses_body(scope: Scope, named: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the server may lose the body, or take it for another call.

    `eventbridge serve` ignores Upgrade and passes it to no application. uvicorn alone, which may serve a mounted
    application, stops reading after the head.
    """
    tokens = {each.strip().lower() for value in named.get("connection", ()) for each in value.split(",")}
    is_upgrade = "upgrade" in named and "upgrade" in tokens
    has_body = "transfer-encoding" in named or named.get("content-length", ["0"]) != ["0"]
    return has_body and (is_upgrade or scope["method"] == "CONNECT")
