"""The header `Content-Encoding` of a request: gzip and deflate are unpacked, within the limit of a body."""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers

from eventbridge.api.bodies import MOST_BYTES
from eventbridge.api.refusal import Refused

#: What zlib calls the formats (RFC 9110, 8.4.1); `deflate` is the format of zlib, RFC 1950.
_FORMATS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_ACCEPTED: Final = "gzip, deflate"

#: So much is unpacked at a time: what lies behind a member of gzip is copied.
_PIECE_BYTES: Final = 64 << 10
#: Members of a gzip file; each costs a decompressor, and an empty one has 20 bytes.
_MOST_MEMBERS: Final = 1_000


def check_content_coding(headers: Headers) -> None:
    """Raise Refused (415) for a body in a content coding that is not taken, or in several."""
    _coding_of(headers)


def unpacked(headers: Headers, content: bytes) -> bytes:
    """Return a request's body without its content coding.

    Raises Refused: 415 for a coding that is not taken, 413 for a body that becomes larger than one may be (no more of
    it is ever held), 400 for one that is not in its coding.
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
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The content coding {', '.join(codings)[:100]!r} is not taken. Send the body as it is, or in one of "
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
                        raise _broken(coding, "something follows its end")
                    member = zlib.decompressobj(_FORMATS[coding])
                found += member.decompress(piece, MOST_BYTES + 1 - len(found))
                if len(found) > MOST_BYTES:
                    raise Refused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"The body unpacks to more than {MOST_BYTES:,} bytes. Send the events in several calls. "
                        "Nothing was published",
                    )
                piece = member.unused_data
    except zlib.error as error:
        raise _broken(coding, str(error)) from None
    if not member.eof:
        raise _broken(coding, "it ends early")
    return bytes(found)


def _broken(coding: str, what: str) -> Refused:
    return Refused(
        HTTPStatus.BAD_REQUEST,
        f"The body is not what Content-Encoding: {coding} says: {what}. Nothing was published",
    )
