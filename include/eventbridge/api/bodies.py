"""From an HTTP request to the bodies of its events: CloudEvents in batched, structured or binary mode, in that order.

Bytes and headers only, nothing of a server (https://github.com/cloudevents/spec, HTTP binding v1.0.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from eventbridge.api.refusal import Refused
from eventbridge.errors import EventError
from eventbridge.event.bindings import of_binary
from eventbridge.event.media_type import kind_of

BATCHED: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"

#: At most so many events and bytes in one call.
MOST_EVENTS: Final = 1_000
MOST_BYTES: Final = 8 * 1024 * 1024

_PREFIX: Final = "ce-"
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
# RFC 9110, 5.6.4, in bytes: HTTP's headers are.
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)

_GZIP: Final = b"\x1f\x8b"
_WHITE_SPACE: Final = b" \t\r\n"

#: Names and values of a request's headers, names in lower case; one that was sent twice is here twice.
RequestHeaders = Sequence[tuple[str, str]]


def bodies_of_request(headers: RequestHeaders, content: bytes) -> list[bytes]:
    """Return the events of a request as JSON texts, not a digit of them changed; whether they are events is not judged.

    Raises Refused for what is in none of the three modes, and for too many events.
    """
    media_types = [value for name, value in headers if name == "content-type"]
    if len(media_types) > 1:
        raise Refused(HTTPStatus.BAD_REQUEST, "The header Content-Type is there twice. Send it once")
    media_type = kind_of(media_types[0]) if media_types else ""
    if media_type in (BATCHED, STRUCTURED) and content.startswith(_GZIP):
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            "The body is packed by gzip, and no header says so. Send Content-Encoding: gzip. Nothing was published",
        )
    if media_type == BATCHED:
        return _elements(content)
    if media_type == STRUCTURED:
        if content.lstrip(_WHITE_SPACE).startswith(b"["):
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                f"The body is an array, and {STRUCTURED} is one event. Send an array as {BATCHED}",
            )
        return [content]
    if any(name.startswith(_PREFIX) for name, _ in headers):
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
        one = f". Send one event as {STRUCTURED}" if content.lstrip(_WHITE_SPACE).startswith(b"{") else ""
        detail = f"The body is not a JSON array: {error}{one}. Nothing was published"
        raise Refused(HTTPStatus.BAD_REQUEST, detail) from None
    if not elements:
        raise Refused(HTTPStatus.BAD_REQUEST, "The array holds no event. Send at least one")
    if len(elements) > MOST_EVENTS:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The array holds {len(elements):,} events, and a call takes {MOST_EVENTS:,}. Send them in several calls. "
            "Nothing was published",
        )
    return [bytes(each) for each in elements]


def _from_binary(headers: RequestHeaders, content: bytes) -> bytes:
    """Return a binary event in structured form."""
    given = [(f"ce_{name[len(_PREFIX) :]}", _attribute(value)) for name, value in headers if name.startswith(_PREFIX)]
    media_types = [(name, value.strip().encode("latin-1")) for name, value in headers if name == "content-type"]
    try:
        return of_binary([*given, *media_types], content or None)
    except EventError as error:
        said = str(error).replace("header ce_", f"header {_PREFIX}", 1)  # by the name that was sent
        raise Refused(HTTPStatus.BAD_REQUEST, f"The call is not what its headers say: {said}") from None


def _attribute(value: str) -> bytes:
    """Return what a header says: unquoted, then percent-decoded, once each (HTTP binding, section 3.1.3.2)."""
    raw = value.encode("latin-1")  # as the server read it
    quoted = _QUOTED.fullmatch(raw)
    return unquote_to_bytes(_ESCAPED.sub(rb"\1", quoted[1]) if quoted else raw)
