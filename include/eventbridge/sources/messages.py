"""The form in which a source hands over messages: Arrow record batches, so that landing needs no object per event."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")

#: In the order in which the bus has them; a name may come several times.
HEADERS = pa.list_(pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))

#: One message of a log per row; of which partition, the reader knows.
MESSAGES = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("published_at", _TIME, nullable=False),  # when the bus took it
        pa.field("key", pa.binary()),  # null: it has none, or this bus keeps none
        pa.field("headers", HEADERS),  # what the bus carries beside the body: CloudEvents attributes, properties
        pa.field("body", pa.binary()),  # null: a tombstone, which says that what its key named is gone
    ]
)

#: One message of a queue per row, with what acknowledges it.
RECEIVED = pa.schema(
    [
        pa.field("receipt", pa.string(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),  # the bus's own, the same at every delivery
        *(field for field in MESSAGES if field.name != "offset"),
    ]
)

#: One message as the inbox keeps it: without what acknowledges it; its offset is its place in the inbox.
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
    # Most messages of a block have the same few: each is made once, and taken as often as it stands there.
    places: dict[tuple[tuple[str, bytes | None], ...] | None, int] = {}
    taken = [places.setdefault(None if one is None else tuple(one), len(places)) for one in headers]
    listed = [None if one is None else [{"name": name, "value": value} for name, value in one] for one in places]
    return pa.array(listed, HEADERS).take(pa.array(taken, pa.int64()))
