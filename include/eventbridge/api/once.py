"""How a call that changes something is answered: once by its `Idempotency-Key`, in a thread, as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from eventbridge.api.access import caller, check_general_scope
from eventbridge.api.idempotency import Idempotency, call_hash_of, key_of
from eventbridge.api.reading import document
from eventbridge.api.refusal import PROBLEM
from eventbridge.model.api_token import OPERATE, ApiToken
from eventbridge.stages.runtime.runtime import Runtime

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

    async def call() -> Response:
        return await asyncio.to_thread(document, request, do)

    return await idempotency.once(token.name, key_of(request), call_hash_of(request, content), call)
