"""`POST /hooks/{name}`: take a webhook of somebody who signs it, as an event of its bus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from eventbridge.api.buses import Buses
from eventbridge.api.content_coding import unpacked
from eventbridge.api.hook_event import event_of_call
from eventbridge.api.publish import RESPONSES, answer, content_of
from eventbridge.api.refusal import Refused, believed
from eventbridge.config.connection import HTTP_TYPES, require_type
from eventbridge.decision.webhook_signature import keys_of, signature_problem
from eventbridge.errors import ConnectionUnusable, EventError
from eventbridge.rule import Bus, RuleSet
from eventbridge.rule.webhook import Webhook
from eventbridge.stages.operate.submissions import PublishResult, Submission, read_submissions, results_of
from eventbridge.stages.runtime.runtime import Runtime

router = APIRouter()

_SECRETS = "signing_secret"
_OTHER = {
    403: "The signature is none of the webhook's secrets, or too old.",
    404: "No rule file names this webhook.",
    415: "The content coding is neither gzip nor deflate.",
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {**told, "description": _OTHER.get(int(status), told["description"])}
    for status, told in RESPONSES.items()
    if status in (200, 400, 403, 404, 408, 413, 415, 429, 503)
}


@router.post(
    "/hooks/{name}",
    summary="Take a webhook",
    responses=_ANSWERS,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}},
)
async def take(
    request: Request, name: Annotated[str, Path(description="A webhook of a bus in the rule files.")]
) -> Response:
    """Publish what a webhook brings, once its signature is right; answered once the bus has it durably.

    It needs no token: the signature says who calls. Sent again, it is the same event, by the sender's own id.
    """
    work: Runtime = request.app.state.work
    buses: Buses = request.app.state.buses
    bus, webhook = _find(await buses.rules(), name)
    content = await content_of(request)
    headers = dict(request.headers)
    # Threads, as the clock and the secret may be asked of a database, and megabytes take a while to hash and parse.
    now = await asyncio.to_thread(_believed_at, work, name, webhook, headers, content)
    believed(request)
    await buses.check_pressure(bus)

    def read() -> list[Submission]:
        # not before the signature, which is of the bytes as they were sent
        body = event_of_call(name, webhook, headers, unpacked(request.headers, content), now)
        return read_submissions([body], max_bytes=work.settings.event_max_bytes)

    try:
        submissions = await asyncio.to_thread(read)
    except EventError as error:
        return answer([PublishResult("", error=str(error))])
    records = [each.record for each in submissions if not each.error]
    await buses.check_rate(bus, len(records))
    places = await buses.publish(bus, bus.source.topics[0], records) if records else []
    return answer(results_of(submissions, places))


def _believed_at(work: Runtime, name: str, webhook: Webhook, headers: Mapping[str, str], content: bytes) -> datetime:
    """Return the time of a call; raises Refused if its signature is not right."""
    now = work.clock()
    problem = signature_problem(webhook.signature, _keys(work, webhook), headers, content, now.timestamp())
    if problem:
        raise Refused(HTTPStatus.FORBIDDEN, f"The webhook {name!r} rejects this call: {problem}")
    return now


def _find(rules: RuleSet, name: str) -> tuple[Bus, Webhook]:
    for bus in rules.buses.values():
        if name in bus.webhooks:
            return bus, bus.webhooks[name]
    # no names that are like it: nobody has shown yet who calls
    raise Refused(HTTPStatus.NOT_FOUND, f"No rule file names a webhook {name!r}")


def _keys(work: Runtime, webhook: Webhook) -> list[bytes]:
    connection = work.connections(webhook.connection)
    require_type(connection, HTTP_TYPES, "a webhook")
    secrets = str(connection.extra.get(_SECRETS) or "")
    try:
        keys = keys_of(webhook.signature, secrets)
    except ValueError as error:
        raise ConnectionUnusable(f"Connection {connection.id!r}: {error} (extra `{_SECRETS}`)") from None
    if not keys:
        raise ConnectionUnusable(f"Connection {connection.id!r} has no extra `{_SECRETS}`: no signature can be checked")
    return keys
