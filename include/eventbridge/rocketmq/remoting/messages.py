"""Messages as brokers store them, and as producers send them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventbridge.rocketmq.remoting.errors import Malformed

#: Total length, magic, checksum, queue, flag, queue offset, place in the log, system flag, born (ms since 1970).
_HEAD: Final = struct.Struct(">IIIIIQQIQ")
#: Times it was consumed again, place of its transaction, length of the body.
_TAIL: Final = struct.Struct(">IQI")
#: Of a batch: length, magic, checksum, flag, length of the body.
_IN_BATCH: Final = struct.Struct(">IIIII")

#: By magic: the bytes that say how long the topic is.
_TOPIC_LENGTHS: Final = {0xDAA320A7: 1, 0xDAA320AB: 2}

_COMPRESSED: Final = 0x1
_BORN_IPV6: Final = 0x10
_STORED_IPV6: Final = 0x20
_IS_BATCH: Final = 0x40
#: Bits 8 to 10 of the system flag.
_CODECS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}

#: A body that becomes longer when it is decompressed is left as it is.
MAX_BODY: Final = 64 << 20

_BETWEEN_NAME_AND_VALUE: Final = "\x01"
_BETWEEN_PROPERTIES: Final = "\x02"


class Incoming(NamedTuple):
    """One message as it was read; times are milliseconds since 1970."""

    offset: int
    stored_at: int
    born_at: int
    reconsumed: int
    body: bytes
    properties: Mapping[str, str]


class Outgoing(NamedTuple):
    """One message to send; RocketMQ's own properties are `KEYS` (parted by spaces) and `TAGS` (one)."""

    body: bytes
    properties: Mapping[str, str] = {}


def decoded(data: bytes) -> Iterator[Incoming]:
    """Yield the messages of the body of a pull's answer; those of a batch one by one.

    A body that cannot be decompressed is as it lies. Raises Malformed for what is no message.
    """
    place = 0
    try:
        while place < len(data):
            total = int.from_bytes(data[place : place + 4], "big")
            if total < _HEAD.size or place + total > len(data):
                raise Malformed(f"a message of {total} bytes within {len(data) - place}")
            yield from _decoded(data, place)
            place += total
    except (struct.error, IndexError) as error:
        raise Malformed(f"a message that is cut off: {error}") from None


def _decoded(data: bytes, place: int) -> Iterator[Incoming]:
    _, magic, _, _, _, offset, _, flags, born_at = _HEAD.unpack_from(data, place)
    if magic not in _TOPIC_LENGTHS:
        raise Malformed(f"a message of the format {magic:#x}")
    place += _HEAD.size + (20 if flags & _BORN_IPV6 else 8)
    stored_at = int.from_bytes(data[place : place + 8], "big")
    place += 8 + (20 if flags & _STORED_IPV6 else 8)
    reconsumed, _, length = _TAIL.unpack_from(data, place)
    place += _TAIL.size
    body = data[place : place + length]
    place += length
    width = _TOPIC_LENGTHS[magic]
    place += width + int.from_bytes(data[place : place + width], "big")
    length = int.from_bytes(data[place : place + 2], "big")
    properties = properties_of(data[place + 2 : place + 2 + length])
    if flags & _COMPRESSED:
        body = decompressed(body, _CODECS.get(flags >> 8 & 7, ""))
    if flags & _IS_BATCH:
        for number, each in enumerate(_of_batch(body)):
            yield Incoming(offset + number, stored_at, born_at, reconsumed, each.body, each.properties)
    else:
        yield Incoming(offset, stored_at, born_at, reconsumed, body, properties)


def decompressed(body: bytes, codec: str) -> bytes:
    """Return a body decompressed; as it is where that is not possible, or would be longer than MAX_BODY."""
    try:
        if codec == "zlib":
            unpacking = zlib.decompressobj()
            found = unpacking.decompress(body, MAX_BODY)
            return found if unpacking.eof else body
        import pyarrow as pa  # not at the head: few topics hold what needs it

        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            found = stream.read(MAX_BODY + 1)
        return found if len(found) <= MAX_BODY else body
    except (zlib.error, OSError, ValueError):
        return body


def properties_of(data: bytes) -> dict[str, str]:
    """Return properties by name, as brokers store them."""
    if not data:
        return {}
    pairs = data.decode("utf-8", "replace").split(_BETWEEN_PROPERTIES)
    return {name: value for name, found, value in (pair.partition(_BETWEEN_NAME_AND_VALUE) for pair in pairs) if found}


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties as one text; the two characters that part them become spaces."""
    return "".join(
        f"{_plain(name)}{_BETWEEN_NAME_AND_VALUE}{_plain(value)}{_BETWEEN_PROPERTIES}"
        for name, value in properties.items()
    )


def batch_body(messages: Sequence[Outgoing]) -> bytes:
    """Return messages as the body of one batch."""
    parts: list[bytes] = []
    for message in messages:
        properties = properties_text(message.properties).encode("utf-8", "replace")
        length = _IN_BATCH.size + len(message.body) + 2 + len(properties)
        parts += (_IN_BATCH.pack(length, 0, 0, 0, len(message.body)), message.body)
        parts += (len(properties).to_bytes(2, "big"), properties)
    return b"".join(parts)


def _of_batch(data: bytes) -> Iterator[Outgoing]:
    place = 0
    while place < len(data):
        total, _, _, _, length = _IN_BATCH.unpack_from(data, place)
        if total < _IN_BATCH.size or place + total > len(data):
            raise Malformed(f"a message of {total} bytes within a batch of {len(data) - place}")
        begin = place + _IN_BATCH.size
        end = begin + length
        yield Outgoing(data[begin:end], properties_of(data[end + 2 : place + total]))
        place += total


def _plain(text: str) -> str:
    return text.replace(_BETWEEN_NAME_AND_VALUE, " ").replace(_BETWEEN_PROPERTIES, " ")
