"""HEAD: what GET responds with, without its body (RFC 9110, 9.3.2); the web server leaves the body out."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """Hands a call by HEAD on as one by GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a call."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        # a copy: the server goes by its own, and sends no body
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)
