"""Serves OPTIONS of the publish endpoint and of webhooks: the handshake by which a sender asks whether it may send.

See https://github.com/cloudevents/spec, HTTP 1.1 Web Hooks for Event Delivery, section 4.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from eventbridge.api.refusal import CallRefused
from eventbridge.model.api import V1
from eventbridge.runtime.runtime import Runtime

router = APIRouter(prefix=V1)

_ALLOW: Final = {"allow": "POST"}
_REFUSED: Final = (
    "This server accepts no handshake from this sender. Ask the operator of the server to add the sender's "
    "WebHook-Request-Origin to the setting EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS"
)
#: The number of requests a minute that a sender may ask for.
_RATE: Final = re.compile("[1-9][0-9]{0,8}", re.ASCII)


async def consent(request: Request) -> Response:
    """Allow a sender that EVENTBRIDGE_WEBHOOK_ALLOWED_ORIGINS names, at the rate that it asks for, and refuse any
    other.

    The call needs no token, and the response does not depend on the path: it reveals neither buses nor webhooks. It
    permits no event: each one still needs a token or a signature, and back pressure answers with 429.
    """
    runtime: Runtime = request.app.state.runtime
    allowed = runtime.settings.webhook_allowed_origins
    origin = request.headers.get("webhook-request-origin", "")
    if not origin or ("*" not in allowed and origin.lower() not in allowed):
        raise CallRefused(HTTPStatus.METHOD_NOT_ALLOWED, _REFUSED, _ALLOW)
    rate = request.headers.get("webhook-request-rate", "")
    consented = {
        "webhook-allowed-origin": "*" if "*" in allowed else origin,
        "webhook-allowed-rate": rate if _RATE.fullmatch(rate) else "*",
    }
    return Response(headers=_ALLOW | consented)


for _path in ("/buses/{bus}/events", "/hooks/{name}"):
    router.add_api_route(_path, consent, methods=["OPTIONS"], include_in_schema=False)
