"""Defines the Arrow schemas in which sources return messages, so that landing creates no object per event."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")

#: Headers in the order in which the bus has them; a name may occur several times.
HEADERS = pa.list_(pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))

#: One message of a log per row; all rows are of one partition.
MESSAGES = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("published_at", _TIME, nullable=False),  # when the bus stored it
        pa.field("key", pa.binary()),  # null: the message has no key, or the bus stores none
        pa.field("headers", HEADERS),  # CloudEvents attributes and properties that the bus transports outside the body
        pa.field("body", pa.binary()),  # null: a tombstone, which deletes its key
    ]
)

#: One message of a queue per row, with the receipt that acknowledges it.
RECEIVED = pa.schema(
    [
        pa.field("receipt", pa.string(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),  # assigned by the bus, the same at every delivery
        *(field for field in MESSAGES if field.name != "offset"),
    ]
)

#: One message per row, as the inbox stores it: without a receipt; its offset is its position in the inbox.
STORED = pa.schema([field for field in RECEIVED if field.name != "receipt"])


def message_block(
    offsets: Sequence[int] | pa.Array,
    published_at: Sequence[int] | pa.Array,
    bodies: Sequence[bytes | None] | pa.Array,
    keys: Sequence[bytes | None] | pa.Array | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | pa.Array | None = None,
) -> pa.RecordBatch:
    """Return messages as a record batch of `MESSAGES`; times are microseconds since 1970, UTC."""
    count = len(offsets)
    columns = [
        _array(offsets, pa.int64()),
        _array(published_at, pa.int64()).view(_TIME),
        _array(keys, pa.binary()) if keys is not None else pa.nulls(count, pa.binary()),
        _headers(headers) if headers is not None else pa.nulls(count, HEADERS),
        _array(bodies, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def _array(values: Sequence[object] | pa.Array, type_: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, type_)


def _headers(headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | pa.Array) -> pa.Array:
    if isinstance(headers, pa.Array):
        return headers
    # Most messages of a block share a few sets of headers, so each set is created once and referenced from every row.
    numbers: dict[tuple[tuple[str, bytes | None], ...] | None, int] = {}
    taken = [numbers.setdefault(None if one is None else tuple(one), len(numbers)) for one in headers]
    listed = [None if one is None else [{"name": name, "value": value} for name, value in one] for one in numbers]
    return pa.array(listed, HEADERS).take(pa.array(taken, pa.int64()))
