"""Turns a webhook call, its headers and body, into an event by the webhook's mapping."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from eventbridge.errors import EventError
from eventbridge.event.bindings import Place, of_plain
from eventbridge.event.media_type import kind_of
from eventbridge.rules.model import Webhook

_FORM = "application/x-www-form-urlencoded"


def event_of_call(name: str, webhook: Webhook, headers: Mapping[str, str], content: bytes, now: datetime) -> bytes:
    """Return the event: attributes from the mapping, else from the sender's known headers, and the JSON as data.

    `headers` have names in lower case, `now` is an aware time. Raises EventError if the body is not JSON, and if a path
    of the mapping leads to nothing, an object or an array. The values of attributes are not validated.
    """
    if kind_of(headers.get("content-type", "")) == _FORM and not content.lstrip().startswith((b"{", b"[")):
        raise EventError(
            f"data: the body is a form ({_FORM}), and a webhook takes JSON. Set the content type of the webhook to "
            "application/json where it is sent from: at GitHub among the webhook's settings"
        )
    return of_plain(
        {"source": f"/hooks/{name}", **_known(webhook, headers), **webhook.mapping}, content, Place("", now)
    )


def _known(webhook: Webhook, headers: Mapping[str, str]) -> dict[str, str]:
    match webhook.signature:
        case "github":
            return {"id": headers.get("x-github-delivery", ""), "type": f"github.{headers.get('x-github-event', '')}"}
        case "stripe":
            return {"id": "$.id", "type": "$.type"}
        case _:
            return {"id": headers.get("webhook-id", ""), "type": "$.type"}
