"""Routes that ask who calls before anything else: the framework reads and parses a body before its dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from eventbridge.api.access import caller, credentials_of


class TokenFirst(APIRoute):
    """A route whose call has a valid token, or is refused while its body lies unread on the connection."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what responds to a call."""
        responded = super().get_route_handler()

        async def response(request: Request) -> Response:
            opened: Callable[[Request], Awaitable[None]] | None = getattr(request.app.state, "opened", None)
            if (
                opened is not None
            ):  # another server mounts the application, and opens the installation at its first call
                await opened(request)
            await caller(request, await credentials_of(request))
            return await responded(request)

        return response
