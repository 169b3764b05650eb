"""Routes that check the token first; the framework would read and parse the body before its dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from eventbridge.api.access import caller, credentials_of


class TokenFirst(APIRoute):
    """A route that refuses a call without a valid token before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a call."""
        handle = super().get_route_handler()

        async def handle_with_token(request: Request) -> Response:
            opened: Callable[[Request], Awaitable[None]] | None = getattr(request.app.state, "opened", None)
            if opened is not None:  # another server mounts the application: its first call opens the installation
                await opened(request)
            await caller(request, await credentials_of(request))
            return await handle(request)

        return handle_with_token
