"""Converts messages of RocketMQ to Arrow blocks; CloudEvents properties get the names that headers have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from eventbridge.clients.rocketmq.remoting.messages import IncomingMessage
from eventbridge.sources.messages import message_block

#: A block ends at whichever comes first: this many messages, or this many bytes of bodies.
BLOCK_MESSAGES: Final = 5_000
BLOCK_BYTES: Final = 4 << 20

#: Properties of CloudEvents' SDK that hold the media type of the data or of the whole event: the first one counts.
_PREFIX: Final = "CE_"
_MEDIA_TYPES: Final = ("CE_contenttype", "CE_datacontenttype", "contenttype")

#: Properties that clients and brokers write for their own use.
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
    # equal properties are mostly the same object while their messages exist
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
