"""Splits an HTTP request into its events: CloudEvents in batched, structured or binary mode, compressed or not.

It works on headers and bytes, without a server. See https://github.com/cloudevents/spec, HTTP binding v1.0.2.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.datastructures import Headers

from eventbridge.api.refusal import CallRefused
from eventbridge.errors import EventError
from eventbridge.event.bindings import event_from_binary, kind_of

BATCHED: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"

#: The maximum number of events in one call, and of bytes in its body.
MAX_EVENTS: Final = 1_000
MAX_BYTES: Final = 8 * 1024 * 1024

_PREFIX: Final = "ce-"
# One field for each event that a call may have, and one more. The parser checks further elements but does not store
# them, because a list of four million elements would take 300 MB and block every other thread for a second.
_ARRAY_FIELDS: Final = tuple(f"event_{number}" for number in range(MAX_EVENTS + 1))
_ARRAY: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Array", [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in _ARRAY_FIELDS], array_like=True
    )
)
# Quoted strings and their escapes (RFC 9110, 5.6.4). The patterns match bytes, because HTTP headers are bytes.
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)

_GZIP: Final = b"\x1f\x8b"
_WHITE_SPACE: Final = b" \t\r\n"

#: Names (in lower case) and values of a request's headers; a header that was sent twice appears twice.
RequestHeaders = Sequence[tuple[str, str]]


def bodies_of_request(headers: RequestHeaders, content: bytes) -> list[bytes]:
    """Return the events of a request as unvalidated JSON; only an event in binary mode is serialized again.

    Raises CallRefused if the request is in none of the three modes, or has too many events.
    """
    media_types = [value for name, value in headers if name == "content-type"]
    if len(media_types) > 1:
        raise CallRefused(
            HTTPStatus.BAD_REQUEST,
            "The request has more than one header Content-Type. Send it once",
            code="invalid_body",
        )
    media_type = kind_of(media_types[0]) if media_types else ""
    if media_type in (BATCHED, STRUCTURED) and content.startswith(_GZIP):
        raise CallRefused(
            HTTPStatus.BAD_REQUEST,
            "The body is in gzip, but no header says so. Send Content-Encoding: gzip. Nothing was published",
            code="invalid_body",
        )
    if media_type == BATCHED:
        return _elements(content)
    if media_type == STRUCTURED:
        if content.lstrip(_WHITE_SPACE).startswith(b"["):
            raise CallRefused(
                HTTPStatus.BAD_REQUEST,
                f"The body is an array, but {STRUCTURED} is for one event. Send an array as {BATCHED}",
                code="invalid_body",
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
        found = _ARRAY.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        one = f". Send one event as {STRUCTURED}" if content.lstrip(_WHITE_SPACE).startswith(b"{") else ""
        detail = f"The body is not a JSON array: {error}{one}. Nothing was published"
        raise CallRefused(HTTPStatus.BAD_REQUEST, detail, code="invalid_body") from None
    events: list[bytes] = []
    for name in _ARRAY_FIELDS:
        element = getattr(found, name)
        if element is msgspec.UNSET:
            break
        events.append(bytes(element))
    if not events:
        raise CallRefused(HTTPStatus.BAD_REQUEST, "The array has no events. Send at least one", code="invalid_body")
    if len(events) > MAX_EVENTS:
        raise CallRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The array has more than {MAX_EVENTS:,} events. Send them in several calls. Nothing was published",
        )
    return events


def _from_binary(headers: RequestHeaders, content: bytes) -> bytes:
    """Return a binary event in structured form."""
    given = [(f"ce_{name[len(_PREFIX) :]}", _attribute(value)) for name, value in headers if name.startswith(_PREFIX)]
    media_types = [(name, value.strip().encode("latin-1")) for name, value in headers if name == "content-type"]
    try:
        return event_from_binary([*given, *media_types], content or None)
    except EventError as error:
        reason = str(error).replace("header ce_", f"header {_PREFIX}", 1)  # the name that was sent
        raise CallRefused(
            HTTPStatus.BAD_REQUEST, f"The headers and the body do not form an event: {reason}", code="invalid_body"
        ) from None


def _attribute(value: str) -> bytes:
    """Return the value of a header: unquoted, then percent-decoded, once each (HTTP binding, section 3.1.3.2)."""
    raw = value.encode("latin-1")  # the server decoded it as Latin-1
    quoted = _QUOTED.fullmatch(raw)
    return unquote_to_bytes(_ESCAPED.sub(rb"\1", quoted[1]) if quoted else raw)


#: The `wbits` parameter of zlib for each coding (RFC 9110, 8.4.1); `deflate` is the zlib format, RFC 1950.
_FORMATS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_ACCEPTED: Final = "gzip, deflate"

#: The size of the pieces to decompress; they are small because zlib copies the rest of a piece after each gzip member.
_PIECE_BYTES: Final = 64 << 10
#: The maximum number of members in a gzip body. It is limited because each member needs a new decompressor, and an
#: empty member has only 20 bytes.
_MAX_MEMBERS: Final = 1_000


def check_content_coding(headers: Headers) -> None:
    """Raise CallRefused (415) if the body has an unsupported content coding, or several codings."""
    _coding_of(headers)


def unpacked(headers: Headers, content: bytes) -> bytes:
    """Return a request's body, decompressed.

    Raises CallRefused: 415 for an unsupported coding, 413 for a body that decompresses to more than the limit (never
    more than the limit is in memory), 400 for a body that is not in the stated coding.
    """
    coding = _coding_of(headers)
    return _inflated(content, coding) if coding and content else content


def _coding_of(headers: Headers) -> str:
    """Return the content coding of a request; "" for none."""
    named = [each.strip().lower() for value in headers.getlist("content-encoding") for each in value.split(",")]
    codings = [each for each in named if each not in ("", "identity")]
    if not codings:
        return ""
    if len(codings) > 1 or codings[0] not in _FORMATS:
        raise CallRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The content coding {', '.join(codings)[:100]!r} is not supported. Send the body without one, or with "
            f"{_ACCEPTED}. Nothing was published",
            {"accept-encoding": _ACCEPTED},
        )
    return codings[0]


def _inflated(content: bytes, coding: str) -> bytes:
    found = bytearray()
    member = zlib.decompressobj(_FORMATS[coding])
    members = 1
    try:
        for start in range(0, len(content), _PIECE_BYTES):
            piece = content[start : start + _PIECE_BYTES]
            while piece:
                if member.eof:
                    members += 1
                    if members > _MAX_MEMBERS or coding == "deflate":
                        raise _broken(coding, "data follows its end")
                    member = zlib.decompressobj(_FORMATS[coding])
                found += member.decompress(piece, MAX_BYTES + 1 - len(found))
                if len(found) > MAX_BYTES:
                    raise CallRefused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"The body decompresses to more than {MAX_BYTES:,} bytes. Send the events in several calls. "
                        "Nothing was published",
                    )
                piece = member.unused_data
    except zlib.error as error:
        raise _broken(coding, str(error)) from None
    if not member.eof:
        raise _broken(coding, "it ends early")
    return bytes(found)


def _broken(coding: str, detail: str) -> CallRefused:
    return CallRefused(
        HTTPStatus.BAD_REQUEST,
        f"The body is not valid {coding}, which Content-Encoding names: {detail}. Nothing was published",
        code="invalid_body",
    )
