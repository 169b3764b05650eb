"""Headers of every response: browsers and proxies neither guess its type nor cache it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class SafeHeaders:
    """Adds `X-Content-Type-Options: nosniff` and, unless the response sets it, `Cache-Control: no-store`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-content-type-options"] = "nosniff"
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)
