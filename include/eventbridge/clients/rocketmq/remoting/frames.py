"""Converts requests and responses to frames (lengths, a JSON header, a body), and signs requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from eventbridge.clients.rocketmq.remoting.errors import Malformed

_LENGTHS: Final = struct.Struct(">II")  # the length of what follows; that of the header, whose kind is the first byte
_JSON: Final = 0
_IS_RESPONSE: Final = 1
#: The version that the client reports: about RocketMQ 5.1.
_VERSION: Final = 455

#: The maximum length of a frame; brokers send up to 256 KiB of messages at a time, or a single larger message.
MAX_FRAME: Final = 64 << 20


class ResponseFrame(NamedTuple):
    """The response to the request with the same `opaque` number."""

    opaque: int
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


def request(code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return a request as a frame."""
    header = {
        "code": code,
        "language": "PYTHON",
        "version": _VERSION,
        "opaque": opaque,
        "flag": 0,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields,
    }
    text = json.dumps(header).encode("ascii")
    return b"".join((_LENGTHS.pack(4 + len(text) + len(body), len(text)), text, body))


def sign(fields: Mapping[str, str], body: bytes, access_key: str, secret_key: str) -> dict[str, str]:
    """Return the fields of a request with the sender's access key and signature."""
    found = {**fields, "AccessKey": access_key}
    text = "".join(found[name] for name in sorted(found)).encode("utf-8", "replace")
    digest = hmac.digest(secret_key.encode(), text + body, hashlib.sha1)
    return {**found, "Signature": base64.b64encode(digest).decode("ascii")}


def take_frames(data: bytearray) -> list[ResponseFrame]:
    """Remove the complete frames from the front of a receive buffer; requests from the server are dropped.

    Raises Malformed if the bytes are not a frame.
    """
    found: list[ResponseFrame] = []
    position = 0
    with memoryview(data) as view:  # slices of the bytearray itself would be copied twice
        while len(data) - position >= _LENGTHS.size:
            length, head = _LENGTHS.unpack_from(data, position)
            if not 4 <= length <= MAX_FRAME or (head & 0xFFFFFF) > length - 4:
                raise Malformed(f"a frame of {length} bytes: is this a port of RocketMQ's remoting protocol?")
            if len(data) - position < 4 + length:
                break
            begin = position + _LENGTHS.size
            body = begin + (head & 0xFFFFFF)
            position += 4 + length
            response = _response(head >> 24, bytes(view[begin:body]), bytes(view[body:position]))
            if response is not None:
                found.append(response)
    del data[:position]
    return found


def _response(kind: int, text: bytes, body: bytes) -> ResponseFrame | None:
    if kind != _JSON:
        raise Malformed(f"a header of kind {kind}, but only JSON (0) was requested")
    try:
        header = json.loads(text)
        if not int(header["flag"]) & _IS_RESPONSE:
            return None
        fields = header.get("extFields") or {}
        return ResponseFrame(int(header["opaque"]), int(header["code"]), str(header.get("remark") or ""), fields, body)
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"a header that cannot be read: {error}") from None
