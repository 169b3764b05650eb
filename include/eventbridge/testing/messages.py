"""Messages as Python values, for tests and inspection; EventBridge itself passes blocks on unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from eventbridge.sources.messages import message_block

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Headers = Sequence[tuple[str, bytes | None]]


class Message(NamedTuple):
    """One row of a message block, as Python values; `headers` are (name, value)."""

    offset: int
    published_at: datetime
    body: bytes | None
    key: bytes | None = None
    headers: Headers | None = None


def messages_of(blocks: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Yield the messages of the blocks of a log source's `read`, one by one."""
    for block in blocks:
        for row in block.to_pylist():
            headers = row["headers"]
            listed = None if headers is None else [(each["name"], each["value"]) for each in headers]
            yield Message(row["offset"], row["published_at"], row["body"], row["key"], listed)


def block_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as one block of `MESSAGES`."""
    return message_block(
        [message.offset for message in messages],
        [(message.published_at - _EPOCH) // _MICROSECOND for message in messages],
        [message.body for message in messages],
        [message.key for message in messages],
        [message.headers for message in messages],
    )
