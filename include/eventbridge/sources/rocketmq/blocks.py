"""Converts messages of RocketMQ to Arrow blocks; CloudEvents properties get the names that headers have elsewhere."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.clients.rocketmq.remoting.messages import (
    MAX_MILLISECONDS,
    MAX_READ_OFFSET,
    IncomingMessage,
    properties_of,
)
from eventbridge.clients.rocketmq.remoting.reading import PullResult
from eventbridge.sources.messages import message_block

#: A block ends after this many messages or this many bytes of bodies, whichever comes first.
BLOCK_MESSAGES: Final = 5_000
BLOCK_BYTES: Final = 4 << 20

#: Properties of CloudEvents' SDK that hold the media type of the data or of the whole event; the first one counts.
_PREFIX: Final = "CE_"
_MEDIA_TYPES: Final = ("CE_contenttype", "CE_datacontenttype", "contenttype")

#: The properties that clients and brokers write for their own use.
_OF_THE_BUS: Final = frozenset(
    {
        "1ST_POP_TIME",
        "CLUSTER",
        "DELAY",
        "INNER_NUM",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "MSG_REGION",
        "ORIGIN_GROUP",
        "PGROUP",
        "POP_CK",
        "TRACE_ON",
        "UNIQ_KEY",
        "WAIT",
    }
)


def blocks_of(parts: Iterable[Sequence[IncomingMessage]]) -> Iterator[pa.RecordBatch]:
    """Yield messages, which arrive a few at a time, as blocks."""
    found: list[IncomingMessage] = []
    size = 0
    for part in parts:
        for message in part:
            found.append(message)
            size += len(message.body)
            if size >= BLOCK_BYTES or len(found) >= BLOCK_MESSAGES:
                yield _block(found)
                found, size = [], 0
    if found:
        yield _block(found)


def headers_of(properties: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Return properties as headers: `CE_type` as `ce_type`, the media type as `content-type`, others by their names."""
    media_type = next((name for name in _MEDIA_TYPES if name in properties), None)
    return [
        ("content-type" if name == media_type else _header(name), value.encode("utf-8", "replace"))
        for name, value in properties.items()
        if name not in _OF_THE_BUS and (name == media_type or name not in _MEDIA_TYPES)
    ]


def _header(name: str) -> str:
    return f"ce_{name[len(_PREFIX) :]}" if name.startswith(_PREFIX) else name


def _block(messages: Sequence[IncomingMessage]) -> pa.RecordBatch:
    # Messages with equal properties mostly share one object, so each object is converted once.
    made = {id(message.properties): message.properties for message in messages}
    named = {which: headers_of(properties) or None for which, properties in made.items()}
    headers = [named[id(message.properties)] for message in messages]
    keys = [message.properties.get("KEYS") for message in messages]
    return message_block(
        [message.offset for message in messages],
        [message.stored_at * 1_000 for message in messages],
        [message.body for message in messages],
        [None if key is None else key.encode("utf-8", "replace") for key in keys],
        headers if any(headers) else None,
    )


#: The header of a message whose hosts have IPv4 addresses; unused fields are bytes.
_HEAD: Final = np.dtype(
    [
        ("total", ">u4"),
        ("magic", ">u4"),
        ("-", "V12"),
        ("offset", ">u8"),
        ("position", "V8"),
        ("flags", ">u4"),
        ("born", "V16"),
        ("stored_at", ">u8"),
        ("consumed", "V20"),
        ("length", ">u4"),
    ]
)
_TOTAL: Final = struct.Struct(">I")
#: The format whose topic length is one byte; these flag bits mark a message that must be decoded.
_MAGIC: Final = 0xDAA320A7
_NOT_PLAIN: Final = 0x1 | 0x30 | 0xC0

#: Responses are merged until they reach this size, because a block of few messages costs as much as one of many.
_ENOUGH_BYTES: Final = 512 << 10

Numbers = npt.NDArray[np.int64]


def blocks_of_bodies(parts: Iterable[Sequence[PullResult]]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of pull results as blocks. Raises Malformed."""
    found: list[PullResult] = []
    size = 0
    for part in parts:
        found += part
        size += sum(len(each.body) for each in part)
        if size >= _ENOUGH_BYTES:
            yield from _blocks(found)
            found, size = [], 0
    yield from _blocks(found)


def _blocks(pulled: Sequence[PullResult]) -> Iterator[pa.RecordBatch]:
    body = b"".join(each.body for each in pulled)
    heads = _plain_heads(body)
    pieces = None if heads is None else _pieces(body, *heads)
    if heads is None or pieces is None:
        yield from blocks_of(each.messages() for each in pulled)
        return
    offsets = heads[1]["offset"].astype(np.int64)
    block = _block_of_bodies(offsets, heads[1]["stored_at"].astype(np.int64) * 1_000, pieces)
    came_in = np.searchsorted(np.cumsum([len(each.body) for each in pulled]), heads[0], "right")
    starts, ends = (
        np.array(edges)[came_in] for edges in zip(*((each.start, each.end) for each in pulled), strict=True)
    )
    wanted = (starts <= offsets) & (offsets < ends)
    if not wanted.all():
        block = block.filter(pa.array(wanted))
    if block.num_rows:
        yield block


def _plain_heads(body: bytes) -> tuple[Numbers, npt.NDArray[np.void]] | None:
    """Return the offsets and headers of messages; None if any is packed, in another format, truncated or damaged."""
    begins: list[int] = []
    position, last = 0, len(body) - _HEAD.itemsize
    while position <= last:
        begins.append(position)
        total = _TOTAL.unpack_from(body, position)[0]
        if total < _HEAD.itemsize:
            return None
        position += total
    if position != len(body) or not begins:
        return None
    positions = np.array(begins)
    data = np.frombuffer(body, np.uint8)
    heads = data[positions[:, np.newaxis] + np.arange(_HEAD.itemsize)].view(_HEAD).reshape(-1)
    is_plain = (heads["magic"] == _MAGIC).all() and not (heads["flags"] & _NOT_PLAIN).any()
    is_plain &= (heads["offset"] < MAX_READ_OFFSET).all() and (heads["stored_at"] < MAX_MILLISECONDS).all()
    return (positions, heads) if is_plain else None


def _pieces(body: bytes, positions: Numbers, heads: npt.NDArray[np.void]) -> tuple[pa.Array, pa.Array] | None:
    """Return the bodies and properties of messages; None if one declares more bytes than it has."""
    data = np.frombuffer(body, np.uint8)
    ends = positions + heads["total"]
    begin = positions + _HEAD.itemsize
    stop = begin + heads["length"]
    if (stop >= ends).any():
        return None
    after = stop + 1 + data[stop]
    if (after + 2 > ends).any():
        return None
    properties = after + 2
    last = properties + (data[after].astype(np.int64) << 8 | data[after + 1])
    if (last > ends).any():
        return None
    # each message is four pieces: its body, topic, properties, and the next message's header
    edges = np.stack((begin, stop, properties, last), axis=1).reshape(-1).astype(np.int32)
    count = len(edges) - 1
    pieces = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(body)])
    return pieces.take(pa.array(np.arange(0, count, 4))), pieces.take(pa.array(np.arange(2, count, 4)))


def _block_of_bodies(offsets: Numbers, microseconds: Numbers, pieces: tuple[pa.Array, pa.Array]) -> pa.RecordBatch:
    bodies, properties = pieces
    coded = properties.dictionary_encode()  # most messages of a topic have one of a few sets of properties
    named = [properties_of(text) for text in coded.dictionary.to_pylist()]
    keys = [each.get("KEYS") for each in named]
    headers = [headers_of(each) or None for each in named]
    has_keys, has_headers = any(key is not None for key in keys), any(headers)
    written = [None if key is None else key.encode("utf-8", "replace") for key in keys]
    which = coded.indices
    return message_block(
        pa.array(offsets),
        pa.array(microseconds),
        bodies,
        pa.array(written, pa.binary()).take(which) if has_keys else None,
        [headers[number] for number in which.to_pylist()] if has_headers else None,
    )
