"""From a webhook's call to the event that its mapping makes of it; bytes and headers only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from eventbridge.errors import EventError
from eventbridge.event.bindings import Place, of_plain
from eventbridge.event.media_type import kind_of
from eventbridge.rule.webhook import Webhook

_FORM = "application/x-www-form-urlencoded"


def event_of_call(name: str, webhook: Webhook, headers: Mapping[str, str], content: bytes, now: datetime) -> bytes:
    """Return the event: what the mapping says, else what its sender is known to mean, and the JSON as data.

    `headers` by names in lower case, `now` an aware time. Raises EventError for what is not JSON, and for a path that
    leads to nothing, an object or an array. Whether the attributes are right is not judged.
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
