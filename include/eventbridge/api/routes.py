"""Defines two kinds of routes: one checks the token before it reads the body, the other also reads a JSON object."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from eventbridge.api.access import caller, credentials_of
from eventbridge.api.call_pools import run_on_body
from eventbridge.api.refusal import BodyRefused


class TokenFirst(APIRoute):
    """A route that refuses a call without a valid token before it reads the body.

    The framework would read and parse the body before it runs the dependencies of the route.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a call."""
        handle = super().get_route_handler()

        async def handle_with_token(request: Request) -> Response:
            opened: Callable[[Request], Awaitable[None]] | None = getattr(request.app.state, "opened", None)
            if opened is not None:  # another server mounts the application, and the first call opens the installation
                await opened(request)
            await caller(request, await credentials_of(request))
            return await handle(request)

        return handle_with_token


#: The maximum number of bytes by which a body may exceed the largest event, because it may also hold a pattern or
#: a rule file, escaped.
MAX_CALL_BYTES: Final = 2 * 1_048_576
_SHOWN_MEMBERS: Final = 5
_SHOWN_CHARACTERS: Final = 50
_MESSAGE_CHARACTERS: Final = 200


class JsonCall(TokenFirst):
    """A route whose body is a small JSON object, read in a thread; only a few unknown members are passed on.

    The framework validates in the event loop, and creates an error for each member that the model does not have.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a call."""
        handle = super().get_route_handler()
        known = self._members()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request, known))

        return handle_json

    def _members(self) -> tuple[str, ...] | None:
        """Return the names of the members of the body's model; None for a route without a model."""
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
        return tuple(field.alias or name for name, field in model.model_fields.items())


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object with these members. Raises ValueError if a name occurs twice.

    Readers differ in which one counts.
    """
    found = dict(members)
    if len(found) < len(members):
        names = {name for name, _ in members}
        twice = next(name for name in names if sum(name == each for each, _ in members) > 1)
        raise ValueError(f"the member {twice[:_SHOWN_CHARACTERS]!r} occurs twice in an object")
    return found


class _JsonRequest(Request):
    """A request with a bounded body; a body that is too large raises HTTPException, which the framework passes on."""

    def __init__(self, request: Request, known: tuple[str, ...] | None) -> None:
        super().__init__(request.scope, request.receive)
        self._known = known
        self._content: bytes | None = None

    async def body(self) -> bytes:
        """Return the body. Raises HTTPException if it is too large."""
        if self._content is None:
            most = MAX_CALL_BYTES + int(self.app.state.runtime.settings.event_max_size)
            content = bytearray()
            async for part in self.stream():
                content += part
                if len(content) > most:
                    detail = f"The body has more than {most:,} bytes. Nothing was changed"
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"connection": "close"})
            self._content = bytes(content)
        return self._content

    async def json(self) -> Any:
        """Return the JSON of the body, with only the first few members that are unknown to the model.

        The framework refuses the unknown members once it has checked that the caller may make this call.
        """
        content = await self.body()
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            detail = "The body has a content coding, and only calls that publish take one. Send it without one"
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
        try:
            found = await run_on_body(self, content, lambda: json.loads(content, object_pairs_hook=_object))
        except (ValueError, RecursionError) as error:
            detail = f"The body cannot be read as JSON: {str(error)[:_MESSAGE_CHARACTERS]}. Nothing was changed"
            raise BodyRefused(HTTPStatus.BAD_REQUEST, detail) from None
        if self._known is None or not isinstance(found, dict):
            return found
        unknown = [each for each in found if each not in self._known]
        shown = {each[:_SHOWN_CHARACTERS]: None for each in unknown[:_SHOWN_MEMBERS]}
        return {name: found[name] for name in self._known if name in found} | shown
