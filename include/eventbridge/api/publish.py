"""Serves `POST /v1/buses/{bus}/events`, which publishes CloudEvents and responds once they are durable on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from eventbridge.api.access import caller, check_publishes, check_scope
from eventbridge.api.bodies import BATCHED, MAX_BYTES, STRUCTURED, bodies_of_request, check_content_coding, unpacked
from eventbridge.api.buses import Buses
from eventbridge.api.call_pools import run_on_body
from eventbridge.api.descriptions import problems
from eventbridge.api.idempotency import Idempotency, call_hash_of, key_of
from eventbridge.api.middleware import hold
from eventbridge.api.refusal import CallRefused
from eventbridge.api.routes import TokenFirst
from eventbridge.control.submissions import PublishResult, Submission, read_submissions, results_of
from eventbridge.model.api import PUBLISH, V1, ApiToken
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix=V1, route_class=TokenFirst)

#: The maximum time that a body may take to arrive; a slower caller would occupy one of the server's connections for too
#: long.
BODY_SECONDS = 30.0


class Result(BaseModel):
    """The result of one event: its position, or the error that prevented its publication."""

    id: str | None = Field(None, description="The event's id; generated if it had none.")
    topic: str | None = None
    broker: str | None = Field(None, description="Only if the bus has brokers.")
    partition: int | None = None
    offset: int | None = None
    error: str | None = Field(None, description="Why the event was not published, and which part is invalid.")
    status: int | None = Field(
        None, description="413 if the event exceeds the general limit or the limit of its topic."
    )


class PublishResponse(BaseModel):
    """The result of a call: one result for each event, in order."""

    published: int = Field(description="Number of events that are durable on the bus.")
    failed: int = Field(
        description="Number of events that were not published. Resending them unchanged would fail again."
    )
    results: list[Result]


_EVENT = {"type": "object", "required": ["specversion", "type", "source"], "additionalProperties": True}
_EXAMPLE = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed", "data": {"amount": 20}}
_CONTENT = {
    BATCHED: {
        "schema": {"type": "array", "minItems": 1, "maxItems": 1000, "items": _EVENT},
        "example": [_EXAMPLE],
    },
    STRUCTURED: {"schema": _EVENT, "example": _EXAMPLE},
    "application/json": {"schema": {}, "example": _EXAMPLE["data"]},
}
#: The headers of binary mode; an extension attribute is also sent as a `ce-<name>` header.
_ATTRIBUTES = [
    {"name": f"ce-{name}", "in": "header", "description": f"Binary mode: the {name}.", "schema": {"type": "string"}}
    for name in ("specversion", "id", "source", "type", "subject", "time")
]
_STATUSES = {
    400: "No event of the call is valid, or the body cannot be read. Nothing was published.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token has no scope for this bus or does not belong to its owner, or the bus is reserved.",
    404: "No rule file defines this bus or topic.",
    408: "The body did not arrive within 30 seconds. Nothing was published.",
    413: "More than 1,000 events, or 8 MiB decompressed; or every event exceeds the general limit or the limit of its "
    "topic.",
    409: "A call with this Idempotency-Key is in progress.",
    415: "The content type belongs to no CloudEvents mode, or the content coding is neither gzip nor deflate.",
    422: "The Idempotency-Key was used for another call.",
    429: "The bus is not accepting events, because of disk space, store size, backlog or an owner's quota. "
    "Resend the events after the delay in Retry-After.",
    503: "The bus or the ledger fails, and the events may or may not be on the bus; or the server is at a limit, and "
    "nothing was published. Send them again after the delay in Retry-After.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": PublishResponse, "description": "All events are on the bus."},
    207: {
        "model": PublishResponse,
        "description": "Some events are on the bus; the results of the others have the error.",
    },
    **problems("publish", _STATUSES),
}
for _status in (400, 413):
    RESPONSES[_status]["model"] = PublishResponse  # one result per event; a body that cannot be read gets a problem


@router.post(
    "/buses/{bus}/events",
    summary="Publish events",
    operation_id="publish_events",
    tags=["events"],
    responses=RESPONSES,
    openapi_extra={"parameters": _ATTRIBUTES, "requestBody": {"required": True, "content": _CONTENT}},
)
async def publish(
    request: Request,
    bus: Annotated[str, Path(description="The name of an event bus in the rule files.")],
    token: Annotated[ApiToken, Depends(caller)],
    topic: Annotated[str | None, Query(description="A topic of the bus; default: its first topic.")] = None,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Repeating a call with the same key returns the first response, for a day or the server's "
            "EVENTBRIDGE_IDEMPOTENCY_RETENTION."
        ),
    ] = None,
) -> Response:
    """Publish CloudEvents in batched, structured or binary mode, at most 1,000 events and 8 MiB per call.

    A body with `Content-Encoding: gzip` or `deflate` is decompressed; the limit applies to the decompressed size.

    The response is sent once all valid events are durable on the bus, and has one result for each event. An event
    without `id` gets one. Events with the same `partitionkey` (or, without one, the same `subject`) keep their order.

    200 means that every event is on the bus, 207 that some are; then publish only the others again. Neither response
    has a `Location` header, because an event has no URL until a batch has landed it: `GET /v1/events/{event_id}` then
    traces it.
    """
    check_scope(token, PUBLISH, bus)
    runtime: Runtime = request.app.state.runtime
    buses: Buses = request.app.state.buses
    check_publishes(token, bus, await buses.rules())
    found, chosen = await buses.find(bus, topic)
    check_content_coding(request.headers)
    content = await content_of(request)
    key = key_of(request)

    def hash_call() -> str:
        # `read` decompresses the body a second time: that takes less memory than to keep it for calls that wait.
        return call_hash_of(request, unpacked(request.headers, content))

    call_hash = await run_on_body(request, content, hash_call) if key else ""

    def read(name: str) -> list[Submission]:
        bodies = bodies_of_request(request.headers.items(), unpacked(request.headers, content))
        return read_submissions(bodies, max_bytes=runtime.settings.event_max_size, name=name)

    async def call() -> Response:
        await buses.check_pressure(found)
        # The same call gets the same event ids, so that repeating a call whose server died before it stored the
        # response publishes no other events. The name includes the hash, because another call may reuse the key of a
        # call that failed, or whose response has expired.
        name = "" if key is None else f"{token.name} {key} {call_hash}"
        submissions = await run_on_body(request, content, lambda: read(name))
        hold_inflated(request, submissions)
        records = [each.record for each in submissions if not each.error]
        await buses.check_rate(found, len(records))
        positions = await buses.publish(found, chosen, records) if records else []
        return publish_response(results_of(submissions, positions))

    idempotency: Idempotency = request.app.state.idempotency
    return await idempotency.once(token.name, key, call_hash, call)


def hold_inflated(request: Request, submissions: Sequence[Submission]) -> None:
    """Count the events of a compressed body among the bytes of all bodies, until the call ends.

    Raises HTTPException (503) at the limit. The few bodies that are being read at the moment are not counted yet.
    """
    if "content-encoding" in request.headers:
        hold(request, sum(len(each.body) for each in submissions))


def publish_response(results: Sequence[PublishResult]) -> Response:
    """Return the response with the result of each event."""
    failed = sum(1 for each in results if each.error)
    status = HTTPStatus.OK if not failed else HTTPStatus.MULTI_STATUS
    if failed == len(results):
        large = all(each.too_large for each in results)
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if large else HTTPStatus.BAD_REQUEST
    body = {
        "published": len(results) - failed,
        "failed": failed,
        "results": [_result_document(each) for each in results],
    }
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _result_document(result: PublishResult) -> dict[str, object]:
    if result.partition is None:
        error = result.error.encode("utf-8", "replace").decode()  # it may quote half of a surrogate pair
        document: dict[str, object] = {"id": result.event_id} if result.event_id else {}
        status = {"status": int(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)} if result.too_large else {}
        return document | {"error": error} | status
    topic, broker, number = result.partition
    position = {"topic": topic, "broker": broker} if broker else {"topic": topic}
    return {"id": result.event_id, **position, "partition": number, "offset": result.offset}


async def content_of(request: Request) -> bytes:
    """Return the body of a call. Raises CallRefused once it is too large or too late, whatever its headers say."""
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > MAX_BYTES:
                    raise CallRefused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"The body has more than {MAX_BYTES:,} bytes. Send the events in several calls. "
                        "Nothing was published",
                    )
    except TimeoutError:
        raise CallRefused(
            HTTPStatus.REQUEST_TIMEOUT,
            f"The body did not arrive within {BODY_SECONDS:g} seconds. Send fewer events in a call. "
            "Nothing was published",
            {"connection": "close"},
        ) from None
    except ClientDisconnect:  # nobody reads this response; it avoids a traceback in the log
        raise CallRefused(
            HTTPStatus.BAD_REQUEST, "The body ended early. Nothing was published", code="invalid_body"
        ) from None
    return bytes(content)
