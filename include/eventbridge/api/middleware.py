"""Middleware of every call: the limits of a request body, HEAD, and the headers of every response."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventbridge.api.bodies import MAX_BYTES

#: Larger and longer than the limits of a publishing call, which refuses its body with a better message.
MAX_BODY_BYTES = MAX_BYTES + 1024 * 1024
BODY_SECONDS = 40.0


#: The maximum size of all bodies in progress, for webhooks and for other calls: callers of webhooks have no token.
MAX_HELD_BYTES = 256 * 1024 * 1024
_WEBHOOKS = "/hooks/"


class _Held:
    """The bytes of the bodies of calls in progress."""

    def __init__(self) -> None:
        self.count = 0


class BodyLimit:
    """Refuses a body that is larger than 9 MiB or takes longer than 40 seconds, whatever its headers say.

    It also refuses a body while the bodies of other calls take MAX_HELD_BYTES. Webhooks are counted separately, so that
    they cannot block other calls.
    The framework reads the body of a call before it checks the token, so this limit also applies to unknown callers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._of_webhooks, self._of_others = _Held(), _Held()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = self._of_webhooks if scope["path"].startswith(_WEBHOOKS) else self._of_others
        own = _Held()
        try:
            await self._app(scope, _limited(receive, held, own), send)
        finally:
            held.count -= own.count


def _limited(receive: Receive, held: _Held, own: _Held) -> Receive:
    ends_at: float | None = None
    is_complete = False

    async def receive_within_limits() -> Message:
        nonlocal ends_at, is_complete
        if is_complete:  # the framework waits for the end of the connection
            return await receive()
        ends_at = ends_at or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(ends_at):
                message = await receive()
        except TimeoutError:
            detail = f"The body did not arrive within {BODY_SECONDS:g} seconds"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail, {"connection": "close"}) from None
        size = len(message.get("body", b""))
        own.count += size
        held.count += size
        is_complete = not message.get("more_body", False)
        if held.count > MAX_HELD_BYTES:
            detail = "The server holds too many request bodies. Retry after the delay in Retry-After"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"connection": "close", "retry-after": "5"})
        if own.count > MAX_BODY_BYTES:
            detail = f"The body is larger than {MAX_BODY_BYTES:,} bytes"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"connection": "close"})
        return message

    return receive_within_limits


class HeadAsGet:
    """Turns HEAD into GET for the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        # a copy: the server keeps its own scope, and sends no body
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
