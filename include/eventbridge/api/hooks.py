"""Serves `POST /v1/hooks/{name}`, which publishes a signed webhook call as an event on the webhook's bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from eventbridge.api.bodies import unpacked
from eventbridge.api.buses import Buses
from eventbridge.api.call_pools import run_on_webhook
from eventbridge.api.descriptions import problems
from eventbridge.api.publish import RESPONSES, content_of, hold_inflated, publish_response
from eventbridge.api.refusal import CallRefused, mark_authenticated
from eventbridge.config.connection import HTTP_TYPES, require_type
from eventbridge.control.submissions import PublishResult, Submission, read_submissions, results_of
from eventbridge.errors import ConnectionUnusable, EventError
from eventbridge.event.bindings import MessageOrigin, event_from_plain, kind_of
from eventbridge.model.api import V1
from eventbridge.policy.webhook_signature import STANDARD_FAMILIES, hash_once, keys_of, signature_problem
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.model import Webhook
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix=V1)

log = logging.getLogger(__name__)

_SECRETS = "signing_secret"
_REJECTED = (
    "The call is rejected: no webhook of this name accepts this signature. Check the name, the secret and the clock; "
    "the log of the server has the reason"
)
#: A rejection is sent a multiple of this time after the end of the body, so its timing does not reveal which check
#: failed.
_REJECTED_SECONDS = 0.1
#: The minimum number of times that the body of a rejected call is hashed: as often as for a webhook with an old and a
#: new secret. Otherwise the shorter delay of many large bodies sent at the same time would reveal that a webhook does
#: not exist.
_HASHED_TIMES = 2
_OTHER = {
    403: "No rule file defines this webhook, or the signature matches none of its secrets, or is too old.",
    415: "The content coding is neither gzip nor deflate.",
    422: "A value is out of range.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **{status: response for status, response in RESPONSES.items() if status in (200, 400, 408, 413, 429, 503)},
    **problems("webhook", _OTHER),
}


class _CallRejected(Exception):
    """A rejected call, with the reason for the log. The caller does not even learn whether the webhook exists."""


@router.post(
    "/hooks/{name}",
    summary="Receive a webhook",
    operation_id="receive_webhook",
    tags=["events"],
    responses=_RESPONSES,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {}, "example": {"action": "opened"}}},
        }
    },
)
async def take(
    request: Request, name: Annotated[str, Path(description="A webhook of a bus in the rule files.")]
) -> Response:
    """Check the signature of a webhook call, publish its event, and respond once the event is durable on the bus.

    The call needs no token: the signature identifies the sender. A repeated call has the same event id, which comes
    from the sender.
    """
    runtime: Runtime = request.app.state.runtime
    buses: Buses = request.app.state.buses
    content = await content_of(request)
    whole_at = asyncio.get_running_loop().time()
    # not dict(request.headers), which searches all headers for each one; the first of the headers with a name counts
    headers = dict(reversed(request.headers.items()))
    try:
        rules = await buses.rules()
        # In a thread, as clock and secret may come from a database, and megabytes take a while to hash and parse.
        bus, webhook, now = await run_on_webhook(
            request, content, lambda: _verified(runtime, (rules, name), headers, content)
        )
    except _CallRejected as rejected:
        log.warning("a call to the webhook %.100r was rejected: %s", name, rejected)
        passed = asyncio.get_running_loop().time() - whole_at
        await asyncio.sleep(_REJECTED_SECONDS - passed % _REJECTED_SECONDS)
        raise CallRefused(HTTPStatus.FORBIDDEN, _REJECTED, code="webhook_rejected") from None
    mark_authenticated(request, sees_rules=False)
    await buses.check_pressure(bus)

    def read() -> list[Submission]:
        # this follows the check of the signature, which covers the bytes as sent
        body = event_of_call(name, webhook, headers, unpacked(request.headers, content), now)
        return read_submissions([body], max_bytes=runtime.settings.event_max_size)

    try:
        submissions = await run_on_webhook(request, content, read)
    except EventError as error:
        return publish_response([PublishResult("", error=str(error))])
    hold_inflated(request, submissions)
    records = [each.record for each in submissions if not each.error]
    await buses.check_rate(bus, len(records))
    positions = await buses.publish(bus, bus.source.topics[0], records) if records else []
    return publish_response(results_of(submissions, positions))


def _verified(
    runtime: Runtime, named: tuple[RuleSet, str], headers: Mapping[str, str], content: bytes
) -> tuple[Bus, Webhook, datetime]:
    """Return the bus and the webhook with the given name, and the time of the call.

    Raises _CallRejected if the webhook does not exist, or if the signature is wrong or cannot be checked. Every case
    takes the same work, so that the response time does not reveal which webhooks exist.
    """
    rules, name = named
    now = runtime.clock()
    bus = next((each for each in rules.buses.values() if name in each.webhooks), None)
    checked = _any_webhook(rules) if bus is None else bus.webhooks[name]
    keys: list[bytes] = []
    problem = "its connection is unusable"
    if checked is not None:
        try:
            keys = _keys(runtime, checked)
            problem = signature_problem(checked.signature, keys, headers, content, now.timestamp())
        except ConnectionUnusable as error:
            problem = str(error)
    if bus is not None and checked is not None and not problem:
        return bus, checked, now
    for _ in range(_HASHED_TIMES - len(keys)):
        hash_once(content)
    raise _CallRejected(problem if bus is not None else "no rule file defines it")


def _any_webhook(rules: RuleSet) -> Webhook | None:
    """Return any webhook. Its connection is read for an unknown name, because reading one may query a database."""
    return next((each for bus in rules.buses.values() for each in bus.webhooks.values()), None)


def _keys(runtime: Runtime, webhook: Webhook) -> list[bytes]:
    connection = runtime.connections(webhook.connection)
    require_type(connection, HTTP_TYPES, "a webhook")
    secrets = str(connection.extra.get(_SECRETS) or "")
    try:
        keys = keys_of(webhook.signature, secrets)
    except ValueError as error:
        raise ConnectionUnusable(f"Connection {connection.id!r}: {error} (extra `{_SECRETS}`)") from None
    if not keys:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} has no extra `{_SECRETS}`, so no signature can be checked"
        )
    return keys


_FORM = "application/x-www-form-urlencoded"


def event_of_call(name: str, webhook: Webhook, headers: Mapping[str, str], content: bytes, now: datetime) -> bytes:
    """Return the event of a call, with attributes from the mapping or else from where the sender usually puts them.

    `headers` have names in lower case, `now` is an aware time. Raises EventError if the body is not JSON, or if a path
    of the mapping leads to nothing, an object or an array. The values of attributes are not validated.
    """
    if kind_of(headers.get("content-type", "")) == _FORM and not content.lstrip().startswith((b"{", b"[")):
        raise EventError(
            f"data: the body is a form ({_FORM}), but webhooks accept only JSON. Set the webhook's content type to "
            "application/json in the service that sends it, for example in GitHub's settings of the webhook"
        )
    return event_from_plain(
        {"source": f"/hooks/{name}", **_attributes_of(webhook, headers), **webhook.mapping},
        content,
        MessageOrigin("", now),
        [(_ID, _id_of(webhook, headers).encode())],
    )


#: The header with the id of a call. Its value is no part of a mapping, in which `$.` would begin a path.
_ID = "id"


def _id_of(webhook: Webhook, headers: Mapping[str, str]) -> str:
    names = ["x-github-delivery"] if webhook.signature == "github" else [f"{each}-id" for each in STANDARD_FAMILIES]
    return next(filter(None, (headers.get(name) for name in names)), "")


def _attributes_of(webhook: Webhook, headers: Mapping[str, str]) -> dict[str, str]:
    match webhook.signature:
        case "github":
            return {"id": f"$header.{_ID}", "type": f"github.{headers.get('x-github-event', '')}"}
        case "stripe":
            return {"id": "$.id", "type": "$.type"}
        case _:
            return {"id": f"$header.{_ID}", "type": "$.type"}
