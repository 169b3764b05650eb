"""From an HTTP request to the bodies of its events: CloudEvents in batched, structured or binary mode, in that order.

Bytes and headers only, nothing of a server (https://github.com/cloudevents/spec, HTTP binding v1.0.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from eventbridge.api.refusal import Refused
from eventbridge.errors import EventError
from eventbridge.event.bindings import of_binary

BATCHED: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"

#: At most so many events and bytes in one call.
MOST_EVENTS: Final = 1_000
MOST_BYTES: Final = 8 * 1024 * 1024

_PREFIX: Final = "ce-"
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def bodies_of_request(headers: Mapping[str, str], content: bytes) -> list[bytes]:
    """Return the events of a request as JSON texts, not a digit of them changed; whether they are events is not judged.

    `headers` by names in lower case. Raises Refused for what is in none of the three modes, and for too many events.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == BATCHED:
        return _elements(content)
    if media_type == STRUCTURED:
        return [content]
    if any(name.startswith(_PREFIX) for name in headers):
        return [_from_binary(headers, content)]
    wrong = f"The content type {media_type!r} is not that of a CloudEvents mode" if media_type else "No content type"
    raise Refused(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"{wrong}. Send {BATCHED} (a JSON array of events), {STRUCTURED} (one event), or binary mode: the attributes "
        "as headers ce-id, ce-source, ce-type, ce-specversion, and the data as the body",
    )


def _elements(content: bytes) -> list[bytes]:
    try:
        elements = _ELEMENTS.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"The body is not a JSON array: {error}. Nothing was published") from None
    if not elements:
        raise Refused(HTTPStatus.BAD_REQUEST, "The array holds no event. Send at least one")
    if len(elements) > MOST_EVENTS:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The array holds {len(elements):,} events, and a call takes {MOST_EVENTS:,}. Send them in several calls. "
            "Nothing was published",
        )
    return [bytes(each) for each in elements]


def _from_binary(headers: Mapping[str, str], content: bytes) -> bytes:
    """Return a binary event in structured form, its attributes decoded: percent-encoded UTF-8 (section 3.1.3.2)."""
    given = [
        (f"ce_{name[len(_PREFIX) :]}", unquote_to_bytes(value.encode("latin-1", "replace")))
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    ]
    media_type = headers.get("content-type", "").strip()
    try:
        return of_binary([*given, ("content-type", media_type.encode("latin-1", "replace"))], content or None)
    except EventError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"The call is not what its headers say: {error}") from None
