"""From a webhook's call to the event that its mapping makes of it; bytes and headers only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from eventbridge.errors import EventError
from eventbridge.rule.webhook import Webhook

_DECODER: Final = msgspec.json.Decoder()


def event_of_call(name: str, webhook: Webhook, headers: Mapping[str, str], content: bytes, now: datetime) -> bytes:
    """Return the event: what the mapping says, else what its sender is known to mean, and the JSON as data.

    `headers` by names in lower case, `now` an aware time. Raises EventError for what is no JSON, and for a path that
    leads to nothing, an object or an array. Whether the attributes are right is not judged.
    """
    try:
        value = _DECODER.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EventError(f"the call is no JSON: {error}. Have it sent as application/json") from None
    said = {"source": f"/hooks/{name}", "time": _text(now), **_known(webhook, headers), **webhook.mapping}
    attributes = {key: _found(value, key, text) if text.startswith("$.") else text for key, text in said.items()}
    members = {"specversion": "1.0", **attributes, "datacontenttype": "application/json"}
    return json.dumps(members).encode()[:-1] + b', "data": ' + content + b"}"


def _known(webhook: Webhook, headers: Mapping[str, str]) -> dict[str, str]:
    match webhook.signature:
        case "github":
            return {"id": headers.get("x-github-delivery", ""), "type": f"github.{headers.get('x-github-event', '')}"}
        case "stripe":
            return {"id": "$.id", "type": "$.type"}
        case _:
            return {"id": headers.get("webhook-id", ""), "type": "$.type"}


def _found(value: Any, name: str, path: str) -> str:
    for step in path.split(".")[1:]:
        if not isinstance(value, dict) or step not in value:
            raise EventError(f"mapping of {name}: there is nothing at {path}")
        value = value[step]
    match value:
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case _:
            raise EventError(f"mapping of {name}: {path} leads to neither text nor a whole number")


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
