"""Decodes and encodes the formats in which brokers store messages and producers send them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.errors import Malformed, Refused

#: Total length, magic, checksum, queue, flag, queue offset, position in the log, system flag, born (ms since 1970),
#: host of the producer, stored, host of the broker, number of redeliveries, position of its transaction, size.
_FIXED: Final = struct.Struct(">IIIIIQQIQ8xQ8xIQI")
#: The same fields with IPv6 addresses of hosts, by the IPv6 bits of the system flag.
_FIXED_IPV6: Final = {
    0x10: struct.Struct(">IIIIIQQIQ20xQ8xIQI"),
    0x20: struct.Struct(">IIIIIQQIQ8xQ20xIQI"),
    0x30: struct.Struct(">IIIIIQQIQ20xQ20xIQI"),
}
#: The header in a batch: length, magic, checksum, flag, length of the body.
_IN_BATCH: Final = struct.Struct(">IIIII")

#: The size of the topic's length field, by magic.
_TOPIC_LENGTHS: Final = {0xDAA320A7: 1, 0xDAA320AB: 2}

_COMPRESSED: Final = 0x1
_IPV6: Final = 0x30
#: NEED_UNWRAP and INNER_BATCH; a producer may set one of them, brokers set both for a batch.
_IS_BATCH: Final = 0xC0
#: The compression, by bits 8 to 10 of the system flag.
_CODECS: Final = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}

#: Brokers read the length of properties as a signed 16-bit number.
_MAX_PROPERTIES: Final = 32_767

#: A body that would be longer than this when decompressed is left compressed.
MAX_BODY: Final = 64 << 20

_BETWEEN_NAME_AND_VALUE: Final = "\x01"
_BETWEEN_PROPERTIES: Final = "\x02"


class IncomingMessage(NamedTuple):
    """One message that was read; times are milliseconds since 1970."""

    offset: int
    stored_at: int
    born_at: int
    reconsumed: int
    body: bytes
    properties: Mapping[str, str]
    queue: int = 0


#: Offsets and times from these values on are rejected, because the offsets overflow signed 64-bit columns, and the
#: times are after the year 9999, which neither Python nor SQL supports.
MAX_READ_OFFSET: Final = 1 << 63
MAX_MILLISECONDS: Final = 253_402_300_800_000


class OutgoingMessage(NamedTuple):
    """One message to send; RocketMQ's own properties are `KEYS` (separated by spaces) and `TAGS` (one)."""

    body: bytes
    properties: Mapping[str, str] = {}


def decode_messages(data: bytes) -> list[IncomingMessage]:
    """Return the messages in the body of a response to a pull or pop; a batch is split into its messages.

    A body that cannot be decompressed is returned unchanged. Raises Malformed if the bytes are not messages.
    """
    found: list[IncomingMessage] = []
    position, size = 0, len(data)
    try:
        while position < size:
            fixed = _FIXED.unpack_from(data, position)
            form = _FIXED_IPV6[fixed[7] & _IPV6] if fixed[7] & _IPV6 else _FIXED
            if form is not _FIXED:
                fixed = form.unpack_from(data, position)
            total, magic, _, queue, _, offset, _, flags, born_at, stored_at, reconsumed, _, length = fixed
            width = _TOPIC_LENGTHS.get(magic)
            if width is None:
                raise Malformed(f"a message of the format {magic:#x}")
            if offset >= MAX_READ_OFFSET or stored_at >= MAX_MILLISECONDS:
                raise Malformed(
                    f"a message at offset {offset} of {stored_at} ms after 1970: no broker has such a message"
                )
            begin = position + form.size
            end = begin + length
            after = end + width + int.from_bytes(data[end : end + width], "big")
            last = after + 2 + int.from_bytes(data[after : after + 2], "big")
            position += total
            if last > position or position > size:
                raise Malformed(f"a message of {total} bytes that declares more, or is truncated")
            body, properties = data[begin:end], properties_of(data[after + 2 : last])
            if flags & _COMPRESSED:
                body = decompressed(body, _CODECS.get(flags >> 8 & 7, ""))
            whole = IncomingMessage(offset, stored_at, born_at, reconsumed, body, properties, queue)
            if flags & _IS_BATCH == _IS_BATCH:
                found += _parts(whole)
            else:
                found.append(whole)
    except struct.error as error:
        raise Malformed(f"a truncated message: {error}") from None
    return found


def decompressed(body: bytes, codec: str) -> bytes:
    """Return a body decompressed, or unchanged if that is not possible or would exceed MAX_BODY."""
    try:
        if codec == "zlib":
            unpacking = zlib.decompressobj()
            found = unpacking.decompress(body, MAX_BODY)
            return found if unpacking.eof else body
        import pyarrow as pa  # imported here, because few topics need it

        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            found = stream.read(MAX_BODY + 1)
        return found if len(found) <= MAX_BODY else body
    except (zlib.error, OSError, ValueError):
        return body


@lru_cache(maxsize=256)  # most messages of a topic share a few properties
def properties_of(data: bytes) -> Mapping[str, str]:
    """Parse the properties that brokers store; callers must not change the result."""
    if not data:
        return {}
    pairs = data.decode("utf-8", "replace").split(_BETWEEN_PROPERTIES)
    return {name: value for name, found, value in (pair.partition(_BETWEEN_NAME_AND_VALUE) for pair in pairs) if found}


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties as one string; separator characters within them become spaces."""
    return "".join(
        f"{_plain(name)}{_BETWEEN_NAME_AND_VALUE}{_plain(value)}{_BETWEEN_PROPERTIES}"
        for name, value in properties.items()
    )


def batch_body(messages: Sequence[OutgoingMessage]) -> bytes:
    """Return messages as the body of one batch."""
    parts: list[bytes] = []
    for message in messages:
        properties = properties_text(message.properties).encode("utf-8", "replace")
        if len(properties) > _MAX_PROPERTIES:
            raise Refused("properties", codes.MESSAGE_ILLEGAL, f"{len(properties)} bytes; brokers accept at most 32767")
        length = _IN_BATCH.size + len(message.body) + 2 + len(properties)
        parts += (_IN_BATCH.pack(length, 0, 0, 0, len(message.body)), message.body)
        parts += (len(properties).to_bytes(2, "big"), properties)
    return b"".join(parts)


def _parts(whole: IncomingMessage) -> list[IncomingMessage]:
    """Return the messages of a batch; a malformed batch is returned as one message."""
    with suppress(Malformed, struct.error):
        if parts := list(_read_batch(whole.body)):
            return [
                whole._replace(offset=whole.offset + number, body=each.body, properties=each.properties)
                for number, each in enumerate(parts)
            ]
    return [whole]


def _read_batch(data: bytes) -> Iterator[OutgoingMessage]:
    position = 0
    while position < len(data):
        total, _, _, _, length = _IN_BATCH.unpack_from(data, position)
        if total < _IN_BATCH.size or position + total > len(data):
            raise Malformed(f"a message of {total} bytes within a batch of {len(data) - position}")
        begin = position + _IN_BATCH.size
        end = begin + length
        yield OutgoingMessage(data[begin:end], properties_of(data[end + 2 : position + total]))
        position += total


def _plain(text: str) -> str:
    return text.replace(_BETWEEN_NAME_AND_VALUE, " ").replace(_BETWEEN_PROPERTIES, " ")
