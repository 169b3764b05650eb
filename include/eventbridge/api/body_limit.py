"""What a call may hold of the server before anybody knows whose it is: a body of some size, for some time.

The framework reads the body of a call before it asks for the token.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventbridge.api.bodies import MOST_BYTES

#: More than what a call that publishes may have, and longer: that one says itself what is wrong with its body.
_MOST_BYTES = MOST_BYTES + 1024 * 1024
_SECONDS = 40.0


class BodyLimit:
    """Refuses a body that is longer than 9 MiB, or does not come within 40 seconds, whatever it said of itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a call."""
        await self._app(scope, _limited(receive) if scope["type"] == "http" else receive, send)


def _limited(receive: Receive) -> Receive:
    taken = 0
    ends_at: float | None = None
    whole = False

    async def part() -> Message:
        nonlocal taken, ends_at, whole
        if whole:  # it is waited for the end of the connection
            return await receive()
        ends_at = ends_at or asyncio.get_running_loop().time() + _SECONDS
        try:
            async with asyncio.timeout_at(ends_at):
                message = await receive()
        except TimeoutError:
            said = f"The body did not come within {_SECONDS:g} seconds"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, said, {"connection": "close"}) from None
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if taken > _MOST_BYTES:
            said = f"The body has more than {_MOST_BYTES:,} bytes"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, {"connection": "close"})
        return message

    return part
