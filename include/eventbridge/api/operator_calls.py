"""Runs calls that change something once for each `Idempotency-Key`, in a thread, and records them as actions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from eventbridge.api.access import caller, caller_name, check_general_scope
from eventbridge.api.call_pools import run_briefly
from eventbridge.api.descriptions import problems
from eventbridge.api.documents import document_response, run_for_caller
from eventbridge.api.idempotency import REPLAYED, Idempotency, call_hash_of, key_of
from eventbridge.api.page.session import Gate, RequestKind
from eventbridge.api.payloads import check_conditions
from eventbridge.api.refusal import CallRefused, refusal_of
from eventbridge.control.actions import note_action
from eventbridge.errors import EventBridgeError, EventError
from eventbridge.event.json_document import parse_document
from eventbridge.model.api import OPERATE, V1, ApiToken
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

_STATUSES = {
    400: "A value is malformed, or contradicts another one.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token has no scope for this call.",
    404: "Not found.",
    408: "The body did not arrive within 40 seconds.",
    409: "A call with this Idempotency-Key is in progress.",
    413: "The body is too large.",
    422: "A value is out of range, or the Idempotency-Key was used for another call.",
    503: "The ledger, the store or the rule files fail, or the server is busy. "
    "Try again after the delay in Retry-After.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    **problems("change", _STATUSES),
}


async def operator(token: Annotated[ApiToken, Depends(caller)]) -> ApiToken:
    """Return the token of a call that changes something. Raises CallRefused if it has no `operate` scope."""
    check_general_scope(token, OPERATE)
    return token


Operator = Annotated[ApiToken, Depends(operator)]


#: A function of `call_pools` that runs a call in a thread.
Pool = Callable[[Request, Callable[[], Response]], Awaitable[Response]]


async def respond_once(
    request: Request, token: ApiToken, do: Callable[[Runtime], Any], *, within: Pool = run_briefly
) -> Response:
    """Run `do` and return its result as JSON; a repeated call with the same key gets the first response.

    `within` is the function that runs `do` in a thread, such as `run_expensive`.
    """
    idempotency: Idempotency = request.app.state.idempotency
    content = await request.body()
    by = caller_name(request, token)

    async def call() -> Response:
        return await within(request, lambda: _recorded_response(request, by, content, do))

    return await idempotency.once(by, key_of(request), call_hash_of(request, content), call)


async def start_once(
    request: Request, token: ApiToken, kind: RequestKind, do: Callable[[Runtime], Any], *, within: Pool = run_briefly
) -> Response:
    """Record a redrive or replay once, and start its delivery if a server mounts this one and can start it.

    Raises CallRefused if the delivery cannot be started; the record stays.
    """
    response = await respond_once(request, token, do, within=within)
    result: Any = parse_document(bytes(response.body))
    name = str(result.get(f"{kind}_id", ""))
    if response.status_code == HTTPStatus.ACCEPTED:  # not stored with the response to a key
        response.headers["location"] = f"{request.scope.get('root_path', '')}{V1}/{kind}s/{name}"
    if not name or result.get("changed") is False or REPLAYED in response.headers:  # a dry run, or already running
        return response
    gate: Gate = request.app.state.gate
    if error := await gate.carry_out(kind, name, token.name):
        raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"The {kind} {name} is recorded, but {error}")
    return response


async def record_name(request: Request, token: ApiToken) -> str:
    """Return the name under which a call records a redrive or replay; a repeated call with a key gets the same name.

    Therefore two servers, or a server that died before it stored the response, record it only once.
    """
    by, key = caller_name(request, token), key_of(request)
    gate: Gate = request.app.state.gate
    unique = uuid.uuid4() if key is None else key + call_hash_of(request, await request.body())
    return f"{gate.recorded_prefix}{by}, {unique}"


def document_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a call, with numbers as written. Raises CallRefused if it is not one.

    This is stricter than the framework, which also accepts NaN and encodings other than UTF-8.
    """
    try:
        return dict(parse_document(content))
    except EventError as error:
        raise CallRefused(HTTPStatus.BAD_REQUEST, f"The body is {error}", code="invalid_body") from None


def _recorded_response(request: Request, by: str, content: bytes, do: Callable[[Runtime], Any]) -> Response:
    """Record the action, run it, and record the status of its response."""
    asked = document_of(content) if content.strip() else {}
    check_conditions(request, asked)
    call = f"{request.method} {request.url.path}"
    number = run_for_caller(request, lambda runtime: note_action(runtime, by, call, asked))
    try:
        response = document_response(request, do)
    except Exception as error:
        record_status(request, number, refusal_of(request, error).status)
        raise
    record_status(request, number, response.status_code)
    return response


def record_status(request: Request, number: int, status: int) -> None:
    """Record the status of an action's response; a failure is only logged, because the action has been carried out."""
    try:
        run_for_caller(request, lambda runtime: runtime.ledger.actions.record_status(number, status))
    except EventBridgeError as error:
        log.error("the status %d of action %d was not recorded: %s", status, number, error)
