"""Routes that take a JSON object: its size and its members are checked before the framework validates it.

The framework validates in the event loop, and makes an error of its own for each member that a model does not have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from eventbridge.api.token_first import TokenFirst

#: A call may be so much larger than the largest event: it may bring a pattern or a rule file too, escaped.
MOST_CALL_BYTES: Final = 2 * 1_048_576
_SHOWN_MEMBERS: Final = 5
_SHOWN_CHARACTERS: Final = 50


class JsonCall(TokenFirst):
    """A route whose body is a small JSON object, read in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what responds to a call."""
        responded = super().get_route_handler()
        known = self._members()

        async def response(request: Request) -> Response:
            return await responded(_JsonRequest(request, known))

        return response

    def _members(self) -> tuple[str, ...] | None:
        """Return the members of the body's model, None for a route that has none."""
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation
        return tuple(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else None


class _JsonRequest(Request):
    """A request whose body is bounded; raises HTTPException, which the framework passes on, where it is not taken."""

    def __init__(self, request: Request, known: tuple[str, ...] | None) -> None:
        super().__init__(request.scope, request.receive)
        self._known = known
        self._content: bytes | None = None

    async def body(self) -> bytes:
        """Return the body; raises HTTPException for one that is too large."""
        if self._content is None:
            most = MOST_CALL_BYTES + int(self.app.state.runtime.settings.event_max_size)
            content = bytearray()
            async for part in self.stream():
                content += part
                if len(content) > most:
                    said = f"The body has more than {most:,} bytes. Nothing was changed"
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, {"connection": "close"})
            self._content = bytes(content)
        return self._content

    async def json(self) -> Any:
        """Return what the body holds; of the members that the model does not have only the first few.

        The framework refuses those, once it knows that the caller may make this call.
        """
        found = await asyncio.to_thread(json.loads, await self.body())
        if self._known is None or not isinstance(found, dict):
            return found
        unknown = [each for each in found if each not in self._known]
        shown = {each[:_SHOWN_CHARACTERS]: None for each in unknown[:_SHOWN_MEMBERS]}
        return {name: found[name] for name in self._known if name in found} | shown
