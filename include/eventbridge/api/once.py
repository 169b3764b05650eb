"""How a call that changes something is answered: once by its `Idempotency-Key`, in a thread, as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from eventbridge.api.access import caller, check_general_scope, who
from eventbridge.api.idempotency import REPLAYED, Idempotency, call_hash_of, key_of
from eventbridge.api.page.session import Asked, Gate
from eventbridge.api.reading import answered, document
from eventbridge.api.refusal import PROBLEM, Refused, refusal_of
from eventbridge.errors import EventBridgeError
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
    409: "A call with this Idempotency-Key is under way.",
    422: "A value is out of its range, or the Idempotency-Key was used for another call.",
    503: "The ledger, the store or the rules fail; try again after Retry-After.",
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


async def once(request: Request, token: ApiToken, do: Callable[[Runtime], Any]) -> Response:
    """Do something and answer what it came to; the same call with the same key is answered, and done once."""
    idempotency: Idempotency = request.app.state.idempotency
    content = await request.body()
    by = who(request, token)

    async def call() -> Response:
        return await asyncio.to_thread(_noted, request, by, content, do)

    return await idempotency.once(by, key_of(request), call_hash_of(request, content), call)


async def begun(request: Request, token: ApiToken, asked: Asked, do: Callable[[Runtime], Any]) -> Response:
    """Do once what records a redrive or replay, and have it delivered where a server around this one can.

    Raises Refused where that fails: what is recorded stays so.
    """
    answer = await once(request, token, do)
    told: Any = parse_document(bytes(answer.body))
    name = str(told.get(f"{asked}_id", ""))
    if not name or told.get("changed") is False or REPLAYED in answer.headers:  # a dry run, or it goes on already
        return answer
    gate: Gate = request.app.state.gate
    if trouble := await gate.carry_out(asked, name, token.name):
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"The {asked} {name} is recorded, but {trouble}")
    return answer


def _noted(request: Request, by: str, content: bytes, do: Callable[[Runtime], Any]) -> Response:
    """Note who asks for what, do it, and note what that was answered."""
    asked: Any = parse_document(content) if content.strip() else {}
    call = f"{request.method} {request.url.path}"
    number = answered(request, lambda work: note_action(work, by, call, asked if isinstance(asked, dict) else {}))
    try:
        answer = document(request, do)
    except Exception as error:
        _answer(request, number, refusal_of(request, error).status)
        raise
    _answer(request, number, answer.status_code)
    return answer


def _answer(request: Request, number: int, status: int) -> None:
    """Note what was answered; where that fails the action is done all the same."""
    try:
        answered(request, lambda work: work.ledger.answer_action(number, status))
    except EventBridgeError as error:
        log.error("what action %d was answered (%d) is not noted: %s", number, status, error)
