"""Splits an HTTP request into its events: CloudEvents in batched, structured or binary mode.

It needs only headers and bytes, no server (https://github.com/cloudevents/spec, HTTP binding v1.0.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from eventbridge.api.refusal import CallRefused
from eventbridge.errors import EventError
from eventbridge.event.bindings import of_binary
from eventbridge.event.media_type import kind_of

BATCHED: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"

#: Events and bytes of one call at most.
MOST_EVENTS: Final = 1_000
MOST_BYTES: Final = 8 * 1024 * 1024

_PREFIX: Final = "ce-"
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
# RFC 9110, 5.6.4, on bytes, because HTTP headers are bytes.
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)

_GZIP: Final = b"\x1f\x8b"
_WHITE_SPACE: Final = b" \t\r\n"

#: Names (in lower case) and values of a request's headers; a header that was sent twice is in it twice.
RequestHeaders = Sequence[tuple[str, str]]


def bodies_of_request(headers: RequestHeaders, content: bytes) -> list[bytes]:
    """Return the events of a request as JSON texts, byte for byte; they are not validated.

    Raises CallRefused if the request is in none of the three modes, or has too many events.
    """
    media_types = [value for name, value in headers if name == "content-type"]
    if len(media_types) > 1:
        raise CallRefused(HTTPStatus.BAD_REQUEST, "The request has the header Content-Type twice. Send it once")
    media_type = kind_of(media_types[0]) if media_types else ""
    if media_type in (BATCHED, STRUCTURED) and content.startswith(_GZIP):
        raise CallRefused(
            HTTPStatus.BAD_REQUEST,
            "The body is in gzip, but no header says so. Send Content-Encoding: gzip. Nothing was published",
        )
    if media_type == BATCHED:
        return _elements(content)
    if media_type == STRUCTURED:
        if content.lstrip(_WHITE_SPACE).startswith(b"["):
            raise CallRefused(
                HTTPStatus.BAD_REQUEST,
                f"The body is an array, but {STRUCTURED} is for one event. Send an array as {BATCHED}",
            )
        return [content]
    if any(name.startswith(_PREFIX) for name, _ in headers):
        return [_from_binary(headers, content)]
    wrong = f"The content type {media_type!r} belongs to no CloudEvents mode" if media_type else "No content type"
    raise CallRefused(
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
        raise CallRefused(HTTPStatus.BAD_REQUEST, detail) from None
    if not elements:
        raise CallRefused(HTTPStatus.BAD_REQUEST, "The array has no events. Send at least one")
    if len(elements) > MOST_EVENTS:
        raise CallRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The array has {len(elements):,} events, and a call takes {MOST_EVENTS:,}. Send them in several calls. "
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
        reason = str(error).replace("header ce_", f"header {_PREFIX}", 1)  # the name that was sent
        raise CallRefused(HTTPStatus.BAD_REQUEST, f"The headers and the body do not form an event: {reason}") from None


def _attribute(value: str) -> bytes:
    """Return the value of a header: unquoted, then percent-decoded, once each (HTTP binding, section 3.1.3.2)."""
    raw = value.encode("latin-1")  # the server decoded it so
    quoted = _QUOTED.fullmatch(raw)
    return unquote_to_bytes(_ESCAPED.sub(rb"\1", quoted[1]) if quoted else raw)
