"""How a call that changes something gets a response: once by its `Idempotency-Key`, in a thread, as JSON."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from eventbridge.api.access import caller, check_general_scope, who
from eventbridge.api.costly import costly
from eventbridge.api.idempotency import REPLAYED, Idempotency, call_hash_of, key_of
from eventbridge.api.page.session import Asked, Gate
from eventbridge.api.payloads import check_conditions
from eventbridge.api.reading import document, run_for_caller
from eventbridge.api.refusal import PROBLEM, Refused, refusal_of
from eventbridge.errors import EventBridgeError, EventError
from eventbridge.event.json_document import parse_document
from eventbridge.model.api_token import OPERATE, ApiToken
from eventbridge.stages.operate.actions import note_action
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)

_STATUSES = {
    400: "A value cannot be read, or does not fit the others.",
    401: "No token, or one that is unknown, revoked or expired.",
    403: "The token has no scope for this.",
    404: "There is no such thing.",
    408: "The body did not come within 40 seconds.",
    409: "A call with this Idempotency-Key is under way.",
    413: "The body is too large.",
    422: "A value is out of its range, or the Idempotency-Key was used for another call.",
    503: "The ledger, the store or the rules fail, or the server is busy; try again after Retry-After.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "What it came to.", "content": {"application/json": {"schema": {}}}},
    **{status: {"description": said, **PROBLEM} for status, said in _STATUSES.items()},
}


async def operator(token: Annotated[ApiToken, Depends(caller)]) -> ApiToken:
    """Return the token of a call that changes something; raises Refused without the scope."""
    check_general_scope(token, OPERATE)
    return token


Operator = Annotated[ApiToken, Depends(operator)]


async def once(request: Request, token: ApiToken, do: Callable[[Runtime], Any], *, is_costly: bool = False) -> Response:
    """Do something and return what it came to; the same call with the same key gets a response, and is done once.

    `is_costly`: among the calls whose cost the caller chooses.
    """
    idempotency: Idempotency = request.app.state.idempotency
    content = await request.body()
    by = who(request, token)

    async def call() -> Response:
        if is_costly:
            return await costly(request, lambda: _noted(request, by, content, do))
        return await asyncio.to_thread(_noted, request, by, content, do)

    return await idempotency.once(by, key_of(request), call_hash_of(request, content), call)


async def begun(
    request: Request, token: ApiToken, asked: Asked, do: Callable[[Runtime], Any], *, is_costly: bool = False
) -> Response:
    """Do once what records a redrive or replay, and have it delivered where a server around this one can.

    Raises Refused where that fails: what is recorded stays so.
    """
    response = await once(request, token, do, is_costly=is_costly)
    told: Any = parse_document(bytes(response.body))
    name = str(told.get(f"{asked}_id", ""))
    if not name or told.get("changed") is False or REPLAYED in response.headers:  # a dry run, or it goes on already
        return response
    gate: Gate = request.app.state.gate
    if trouble := await gate.carry_out(asked, name, token.name):
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"The {asked} {name} is recorded, but {trouble}")
    return response


async def run_of(request: Request, token: ApiToken) -> str:
    """Return the name under which a call records a redrive or replay: with a key the same for the same call.

    So it is recorded once also by two servers, and by one that died before it kept its response.
    """
    by, key = who(request, token), key_of(request)
    gate: Gate = request.app.state.gate
    return f"{gate.recorded}{by}, {uuid.uuid4() if key is None else key + call_hash_of(request, await request.body())}"


def document_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object that a call brought, numbers as they were written; raises Refused for what is none.

    The framework also reads NaN, and other encodings than UTF-8.
    """
    try:
        return dict(parse_document(content))
    except EventError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"The body is {error}") from None


def _noted(request: Request, by: str, content: bytes, do: Callable[[Runtime], Any]) -> Response:
    """Note who asks for what, do it, and note what response that got."""
    asked = document_of(content) if content.strip() else {}
    check_conditions(request, asked)
    call = f"{request.method} {request.url.path}"
    number = run_for_caller(request, lambda runtime: note_action(runtime, by, call, asked))
    try:
        response = document(request, do)
    except Exception as error:
        note_status(request, number, refusal_of(request, error).status)
        raise
    note_status(request, number, response.status_code)
    return response


def note_status(request: Request, number: int, status: int) -> None:
    """Note what response an action got; where that fails it is done all the same."""
    try:
        run_for_caller(request, lambda runtime: runtime.ledger.record_action_status(number, status))
    except EventBridgeError as error:
        log.error("what response action %d got (%d) is not noted: %s", number, status, error)
