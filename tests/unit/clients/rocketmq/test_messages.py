"""Messages of RocketMQ: what a broker stores is read back, whatever is in it, and what is none is refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.clients.rocketmq.remoting import messages
from eventbridge.clients.rocketmq.remoting.errors import Malformed, Refused
from eventbridge.clients.rocketmq.remoting.messages import (
    IncomingMessage,
    OutgoingMessage,
    batch_body,
    decode_messages,
    properties_text,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=4)


def stored(
    offset: int,
    body: bytes,
    properties: Mapping[str, str] = {},
    *,
    flags: int = 0,
    magic: int = 0xDAA320A7,
    topic: str = "flights",
) -> bytes:
    """Return a message as a broker stores it."""
    text = properties_text(properties).encode()
    head = struct.pack(">IIIIQQIQ", magic, zlib.crc32(body), 3, 0, offset, 77, flags, 1_700_000_000_000)
    head += b"\0" * (20 if flags & 0x10 else 8) + struct.pack(">Q", 1_700_000_000_123)
    head += b"\0" * (20 if flags & 0x20 else 8) + struct.pack(">IQI", 2, 0, len(body)) + body
    head += len(topic).to_bytes(2 if magic == 0xDAA320AB else 1, "big") + topic.encode()
    head += len(text).to_bytes(2, "big") + text
    return (len(head) + 4).to_bytes(4, "big") + head


@given(
    st.lists(st.tuples(st.binary(max_size=200), PROPERTIES), max_size=5),
    st.sampled_from([0, 0x10, 0x20, 0x30]),
    st.sampled_from([0xDAA320A7, 0xDAA320AB]),
)
def test_a_stored_message_is_read(each: Sequence[tuple[bytes, dict[str, str]]], flags: int, magic: int) -> None:
    """Bodies, properties, offsets and times; with addresses of either length, in both formats."""
    data = b"".join(
        stored(number, body, properties, flags=flags, magic=magic) for number, (body, properties) in enumerate(each)
    )

    assert list(decode_messages(data)) == [
        IncomingMessage(number, 1_700_000_000_123, 1_700_000_000_000, 2, body, properties, queue=3)
        for number, (body, properties) in enumerate(each)
    ]


@given(st.lists(st.tuples(st.binary(max_size=100), PROPERTIES), min_size=1, max_size=5))
def test_a_batch_is_its_messages(each: Sequence[tuple[bytes, dict[str, str]]]) -> None:
    """Each has an offset of its own, from that of the batch on."""
    body = batch_body([OutgoingMessage(*one) for one in each])
    found = list(decode_messages(stored(10, body, {"INNER_NUM": str(len(each))}, flags=0xC0)))

    assert [(one.offset, one.body, one.properties) for one in found] == [
        (10 + number, *one) for number, one in enumerate(each)
    ]


@given(st.binary(max_size=100), st.sampled_from([0x40, 0x80, 0xC0]))
def test_a_message_with_a_wrong_batch_flag_is_one_message(body: bytes, flags: int) -> None:
    """A producer's odd flag stops no runner, and loses no message."""
    found = list(decode_messages(stored(10, b"\xff" + body, {"KEYS": "a"}, flags=flags)))

    assert [(one.offset, one.body) for one in found] == [(10, b"\xff" + body)]


def test_properties_that_no_broker_takes_are_refused() -> None:
    """Before they are sent."""
    with pytest.raises(Refused, match="40003 bytes; brokers accept at most 32767"):
        batch_body([OutgoingMessage(b"", {"a": "x" * 40_000})])


CUT = stored(0, b"x" * 50, {"KEYS": "a"})
#: Bytes that begin no message: too few of any kind, or a whole message but for a format that does not exist.
FORMATS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
NO_MESSAGE = st.one_of(
    st.binary(min_size=1, max_size=60),
    st.binary(min_size=4, max_size=4)
    .filter(lambda form: form not in FORMATS)
    .map(lambda form: CUT[:4] + form + CUT[8:]),
)


@given(NO_MESSAGE)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    """Bytes of no known format are an error, alone and behind a message; no bytes are no messages."""
    for body in (data, stored(0, b"first", {"KEYS": "a"}) + data):
        with pytest.raises(Malformed):
            decode_messages(body)

    assert decode_messages(b"") == []


@given(st.integers(0, 3), st.integers(1, 0xFFFF_FFFF))
def test_a_message_that_says_another_length_is_refused(index: int, more: int) -> None:
    """Its length, and those of its body, topic and properties, are checked: one that is too long is an error."""
    whole = stored(0, b"x" * 50, {"KEYS": "a"})
    at, width = [(0, 4), (84, 4), (88 + 50, 1), (88 + 50 + 1 + 7, 2)][index]
    said = int.from_bytes(whole[at : at + width], "big")
    longer = min(said + more, (1 << 8 * width) - 1)
    damaged = whole[:at] + longer.to_bytes(width, "big") + whole[at + width :]

    assert decode_messages(whole)[0].body == b"x" * 50
    with pytest.raises(Malformed):
        decode_messages(damaged)


@pytest.mark.parametrize("length", range(1, len(CUT)))
def test_a_message_that_is_cut_off_is_refused(length: int) -> None:
    """None of its bytes is passed on, wherever it is cut, also behind a whole one."""
    for data in (CUT[:length], CUT + CUT[:length]):
        with pytest.raises(Malformed):
            decode_messages(data)


@pytest.mark.parametrize(("codec", "kind"), [("zlib", 0), ("lz4", 1), ("zstd", 2), ("zlib", 3)])
def test_compressed_bodies_are_decompressed(codec: str, kind: int) -> None:
    """By whichever of RocketMQ's codecs; with none named it is zlib."""
    text = b'{"amount": 10}' * 1_000
    if codec == "zlib":
        packed = zlib.compress(text)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(text)
        packed = sink.getvalue().to_pybytes()

    (found,) = decode_messages(stored(0, packed, flags=1 | kind << 8))
    assert found.body == text


@pytest.mark.parametrize("kind", range(8))
def test_a_body_that_cannot_be_decompressed_is_left_as_it_is(kind: int) -> None:
    """So it becomes a dead letter of its own, and stops no runner."""
    (found,) = decode_messages(stored(0, b"neither of them", flags=1 | kind << 8))
    assert found.body == b"neither of them"


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_a_body_that_would_become_too_large_is_left_as_it_is(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may stand for gigabytes."""
    monkeypatch.setattr(messages, "MAX_BODY", 1_000)
    text = b"x" * 10_000
    packed = zlib.compress(text) if codec == "zlib" else pa.compress(text, codec, asbytes=True)

    (found,) = decode_messages(stored(0, packed, flags=1 | (3 if codec == "zlib" else 2) << 8))
    assert found.body == packed


def test_a_separator_in_a_property_becomes_a_space() -> None:
    """It becomes a space."""
    assert properties_text({"a\x01": "b\x02c"}) == "a \x01b c\x02"
