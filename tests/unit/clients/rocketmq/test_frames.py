"""Frames of RocketMQ's remoting protocol, and the signature of a request."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.clients.rocketmq.remoting.errors import Malformed
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame, request, sign, take_frames


def response(opaque: int, body: bytes = b"", *, flag: int = 1, **fields: str) -> bytes:
    """Return a response as a server sends it."""
    header = json.dumps({"code": 0, "flag": flag, "opaque": opaque, "extFields": fields}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 40))
def test_responses_are_found_however_they_are_cut(bodies: list[bytes], step: int) -> None:
    """A frame may come in pieces, and several in one piece; requests of the server's own are dropped."""
    sent = b"".join(response(number, body, a="1") + response(99, flag=0) for number, body in enumerate(bodies))
    received, found = bytearray(), []
    for index in range(0, len(sent), step):
        received += sent[index : index + step]
        found += take_frames(received)

    assert found == [ResponseFrame(number, 0, "", {"a": "1"}, body) for number, body in enumerate(bodies)]
    assert received == b""


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\0\0\0\0\0\0\0\0",
        struct.pack(">II", 8, 99) + b"1234",
        struct.pack(">II", 6, 2) + b"{]",
        struct.pack(">II", 6, 2) + b"{}",
        struct.pack(">II", 6, 2) + b"[]",
        struct.pack(">II", 6, 1 << 24 | 2) + b"{}",
    ],
)
def test_an_invalid_frame_is_refused(data: bytes) -> None:
    """Another protocol, lengths that do not fit, invalid headers, and headers of an unrequested kind."""
    with pytest.raises(Malformed):
        take_frames(bytearray(data))


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5)), st.binary(max_size=20))
def test_a_request_says_what_it_was_given(fields: dict[str, str], body: bytes) -> None:
    """Also text that UTF-8 has no bytes for: JSON escapes it."""
    frame = request(310, 7, fields, body)
    length, head = struct.unpack_from(">II", frame)
    header = json.loads(frame[8 : 8 + head])

    assert length == len(frame) - 4
    assert (header["code"], header["opaque"], header["extFields"]) == (310, 7, fields)
    assert frame[8 + head :] == body


def test_a_signature_is_over_values_by_name_and_the_body() -> None:
    """HMAC-SHA1 under the secret key, as RocketMQ's own clients sign."""
    found = sign({"topic": "t", "b": "2"}, b"body", "who", "secret")

    assert found == {"topic": "t", "b": "2", "AccessKey": "who", "Signature": "yMvXRYzliTbts1PuUE7R8F3JazM="}
