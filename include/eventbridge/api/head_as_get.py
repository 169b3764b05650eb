"""HEAD: the response of GET without its body (RFC 9110, 9.3.2); the web server leaves the body out."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """Turns HEAD into GET for the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        # a copy: the server keeps its own scope, and sends no body
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)
