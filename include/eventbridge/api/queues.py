"""Serves the calls with which consumers receive the deliveries of queues, and say what became of them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from eventbridge.api.access import caller, check_scope
from eventbridge.api.call_pools import CallPools, run_briefly, wait_for_disconnect
from eventbridge.api.descriptions import described, problems
from eventbridge.api.refusal import CallRefused
from eventbridge.api.routes import JsonCall
from eventbridge.config.quantities import parse_duration
from eventbridge.control.queues import Receipts, acknowledge, extend, receive, release
from eventbridge.model.api import CONSUME, V1, ApiToken
from eventbridge.model.queue import MAX_COUNT, MAX_VISIBILITY, ReceivedDelivery
from eventbridge.processes import Cancelled, cancelled
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.targets.queue.fields import LEAST_VISIBILITY_SECONDS

#: The maximum time that a call waits for a delivery, in seconds.
MAX_WAIT_SECONDS: Final = 20.0
#: The maximum number of calls that wait for deliveries; further ones are refused.
MAX_WAITING: Final = 256
#: The time between two looks of a waiting call at its queue, in seconds.
_POLL_SECONDS: Final = 0.25
#: The number of waiting calls from which on each of them looks less often, so that all together cost no more.
_CONSUMERS_A_POLL: Final = 25
_MOST_SECONDS: Final = MAX_VISIBILITY.total_seconds()

_STATUSES = {
    400: "A value is malformed or out of range.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token has no scope for this queue.",
    404: "No rule that the caller may see has a target of this queue.",
    408: "The body did not arrive within 40 seconds.",
    413: "The body is too large.",
    422: "A value does not match the description.",
    503: "The ledger or the rule files fail, or the server is busy. Try again after the delay in Retry-After.",
}
router = APIRouter(
    prefix=V1,
    route_class=JsonCall,
    default_response_class=Response,
    responses=problems("change", _STATUSES),
)
_Queue = Annotated[str, Path(description="The name of a queue, as the `queue` of a target gives it.")]
_Caller = Annotated[ApiToken, Depends(caller)]
_Receipt = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_RECEIPTS: Final[list[JsonValue]] = ["l2Dq1WQ0mB1Jr0m4oCqXo3pYHqf0sZ9d"]


class ReceiveCall(BaseModel):
    """How many deliveries to receive, and for how long."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"count": 100, "wait": "20s"}]})

    count: int = Field(100, ge=1, le=MAX_COUNT, strict=True, description="The maximum number of deliveries.")
    visibility_timeout: str | None = Field(
        None, description="How long no other consumer receives them, from 1s to 12h; without it, what the rule says."
    )
    wait: str = Field("0s", description="How long to wait if there are none, at most 20s.")


class _ReceiptsCall(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"receipts": _RECEIPTS}]})

    receipts: list[_Receipt] = Field(max_length=MAX_COUNT, description="The receipts of deliveries.")


class AcknowledgeCall(_ReceiptsCall):
    """The deliveries that the consumer has processed."""


class ExtendCall(_ReceiptsCall):
    """The deliveries that the consumer keeps, and for how long."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"receipts": _RECEIPTS, "visibility_timeout": "5m"}]}
    )

    visibility_timeout: str = Field(
        description="How long from now on no other consumer receives them, from 1s to 12h; "
        "never longer than 12 hours after they were received."
    )


class ReleaseCall(_ReceiptsCall):
    """The deliveries that the consumer could not process."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"receipts": _RECEIPTS, "error": "no stock"}]}
    )

    delay: str | None = Field(
        None, description="When they can be received again, from 0s to 12h; without it, what the retry policy says."
    )
    error: str = Field("", max_length=500, description="What went wrong, for the record of the attempt.")


class Delivery(BaseModel):
    """A delivery; it has `payload_base64` instead of `payload` if the payload is not UTF-8 text."""

    receipt: str = Field(description="Names this consumer's attempt in the other calls.")
    delivery_id: str = Field(description="The same for every attempt.")
    rule: str
    target: str
    attempt: int = Field(description="Counted from 1.")
    visible_until: str = Field(description="Until when no other consumer receives it.")
    content_type: str
    headers: dict[str, str]
    payload: str | None = None
    payload_base64: str | None = None


class ReceivedList(BaseModel):
    """The deliveries that a consumer received, the longest waiting first."""

    deliveries: list[Delivery]


@router.post(
    "/queues/{queue}/receive", summary="Receive deliveries", **described("receive_deliveries", "queues", ReceivedList)
)
async def receive_deliveries(request: Request, token: _Caller, queue: _Queue, call: ReceiveCall) -> Response:
    """Return deliveries that no other consumer has, with together at most 4 MiB of payload.

    Each must be acknowledged before its visibility timeout ends. Otherwise the attempt counts as failed, and the
    delivery returns to the queue. With an ordering key, one delivery of each key is received at a time.
    """
    check_scope(token, CONSUME, queue)
    visible = None if call.visibility_timeout is None else _visibility(call.visibility_timeout)
    wait = _seconds("wait", call.wait, 0.0, MAX_WAIT_SECONDS)
    state = request.app.state
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    if wait and state.waiting_consumers >= MAX_WAITING:
        detail = f"The server has {MAX_WAITING} calls that wait for deliveries. Send the call again without wait"
        raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"retry-after": "5"}, code="server_busy")
    state.waiting_consumers += 1
    # A consumer that has left must take nothing: its attempt would count, and others would wait for its timeout.
    gone, is_gone = threading.Event(), asyncio.create_task(wait_for_disconnect(request))
    is_gone.add_done_callback(lambda _: gone.set())
    before = cancelled.set(gone)
    try:
        while True:
            found: bytes = await _run(
                request, token, lambda runtime, rules: _encode(receive(runtime, rules, queue, call.count, visible))
            )
            left = until - loop.time()
            if found != _NOTHING or left <= 0 or _is_stopping(request):
                return Response(found, media_type="application/json")
            crowd = max(1.0, state.waiting_consumers / _CONSUMERS_A_POLL)
            await asyncio.wait((is_gone,), timeout=min(left, random.uniform(0.5, 1.5) * _POLL_SECONDS * crowd))
    except Cancelled:
        return Response(_NOTHING, media_type="application/json")  # nobody reads it
    finally:
        cancelled.reset(before)
        is_gone.cancel()
        state.waiting_consumers -= 1


@router.post(
    "/queues/{queue}/acknowledge",
    summary="Acknowledge deliveries",
    **described("acknowledge_deliveries", "queues", Receipts),
)
async def acknowledge_deliveries(request: Request, token: _Caller, queue: _Queue, call: AcknowledgeCall) -> Response:
    """Record that the consumer has processed deliveries; they are delivered.

    A repetition has the same result for an hour. A receipt in `expired` had no effect: its visibility timeout was over,
    and the delivery is received again, or is a dead letter.
    """
    check_scope(token, CONSUME, queue)
    return await _respond(request, token, lambda runtime, rules: acknowledge(runtime, rules, queue, call.receipts))


@router.post(
    "/queues/{queue}/extend", summary="Keep deliveries longer", **described("extend_deliveries", "queues", Receipts)
)
async def extend_deliveries(request: Request, token: _Caller, queue: _Queue, call: ExtendCall) -> Response:
    """Let the visibility timeout of deliveries begin again, with another duration."""
    check_scope(token, CONSUME, queue)
    seconds = _visibility(call.visibility_timeout)
    return await _respond(request, token, lambda runtime, rules: extend(runtime, rules, queue, call.receipts, seconds))


@router.post(
    "/queues/{queue}/release", summary="Give deliveries back", **described("release_deliveries", "queues", Receipts)
)
async def release_deliveries(request: Request, token: _Caller, queue: _Queue, call: ReleaseCall) -> Response:
    """Return deliveries to the queue. The attempt counts as failed, so the last one makes a dead letter."""
    check_scope(token, CONSUME, queue)
    delay = None if call.delay is None else _seconds("delay", call.delay, 0.0, _MOST_SECONDS)
    error = call.error.replace("\0", "\ufffd")
    return await _respond(
        request, token, lambda runtime, rules: release(runtime, rules, queue, call.receipts, delay, error)
    )


async def _run(request: Request, token: ApiToken, do: Callable[[Runtime, RuleSet], Any]) -> Any:
    """Run `do` in a thread with the rules that the token may see."""
    rules: RuleSet = await request.app.state.buses.rules()
    if token.owners is not None:
        rules = rules.owned_by(token.owners)
    runtime: Runtime = request.app.state.consumers
    return await run_briefly(request, lambda: do(runtime, rules))


async def _respond(request: Request, token: ApiToken, do: Callable[[Runtime, RuleSet], Receipts]) -> Response:
    found = await _run(request, token, do)
    return Response(msgspec.json.encode(found), media_type="application/json")


def _encode(deliveries: list[ReceivedDelivery]) -> bytes:
    return msgspec.json.encode({"deliveries": [_document(each) for each in deliveries]})


_NOTHING: Final = _encode([])


def _document(delivery: ReceivedDelivery) -> dict[str, Any]:
    found = delivery._asdict()
    payload = found.pop("payload")
    try:
        return found | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return found | {"payload_base64": payload}  # which msgspec encodes


def _visibility(text: str) -> float:
    return _seconds("visibility_timeout", text, LEAST_VISIBILITY_SECONDS, _MOST_SECONDS)


def _seconds(name: str, text: str, least: float, most: float) -> float:
    """Return a duration in seconds. Raises CallRefused if it is malformed or out of range."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise CallRefused(HTTPStatus.BAD_REQUEST, f"{name}: {str(error)[:200]}") from None
    if not least <= seconds <= most:
        shown = "12h" if most == _MOST_SECONDS else f"{most:g}s"
        raise CallRefused(HTTPStatus.BAD_REQUEST, f"{name} must be from {least:g}s to {shown}, not {text[:60]}")
    return seconds


def _is_stopping(request: Request) -> bool:
    pools: CallPools = request.app.state.pools
    return pools.has_ended
