"""The header `Content-Encoding` of a request: decompresses gzip and deflate up to the size limit of a body."""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers

from eventbridge.api.bodies import MOST_BYTES
from eventbridge.api.refusal import CallRefused

#: zlib's numbers of the formats (RFC 9110, 8.4.1); `deflate` is the format of zlib, RFC 1950.
_FORMATS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_ACCEPTED: Final = "gzip, deflate"

#: Size of the pieces to decompress: zlib copies the rest of a piece after each gzip member.
_PIECE_BYTES: Final = 64 << 10
#: Members of a gzip file at most; each costs a decompressor, and an empty one has only 20 bytes.
_MOST_MEMBERS: Final = 1_000


def check_content_coding(headers: Headers) -> None:
    """Raise CallRefused (415) if the body has an unsupported content coding, or several codings."""
    _coding_of(headers)


def unpacked(headers: Headers, content: bytes) -> bytes:
    """Return a request's body, decompressed.

    Raises CallRefused: 415 for an unsupported coding, 413 for a body that decompresses to more than the limit (no more
    than the limit is ever in memory), 400 for a body that is not in its coding.
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
                    if members > _MOST_MEMBERS or coding == "deflate":
                        raise _broken(coding, "data follows its end")
                    member = zlib.decompressobj(_FORMATS[coding])
                found += member.decompress(piece, MOST_BYTES + 1 - len(found))
                if len(found) > MOST_BYTES:
                    raise CallRefused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"The body decompresses to more than {MOST_BYTES:,} bytes. Send the events in several calls. "
                        "Nothing was published",
                    )
                piece = member.unused_data
    except zlib.error as error:
        raise _broken(coding, str(error)) from None
    if not member.eof:
        raise _broken(coding, "it ends early")
    return bytes(found)


def _broken(coding: str, what: str) -> CallRefused:
    return CallRefused(
        HTTPStatus.BAD_REQUEST,
        f"The body is not valid {coding}, which Content-Encoding names: {what}. Nothing was published",
    )
