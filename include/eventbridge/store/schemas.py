"""Defines the schemas of the Parquet files in the store; a file is written with exactly the columns of its schema."""

from __future__ import annotations

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
_DELIVERY_ID = pa.binary(16)

#: buffer/: the archive, with one row per message read from the bus, whatever its status.
BUFFER = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
        pa.field("partition_id", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("published_at", _TIME, nullable=False),  # when the bus accepted it
        pa.field("arrived_at", _TIME, nullable=False),  # when this row was landed; event age is measured from here
        pa.field("status", pa.string(), nullable=False),  # valid | duplicate | malformed | tombstone
        pa.field("reason", pa.string()),  # why malformed
        pa.field("event_id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("type", pa.string()),
        pa.field("body", pa.binary(), nullable=False),  # the message as it arrived
    ]
)

#: deliveries/: one row per matched delivery; `failure` is set if the transform failed and there is no payload.
DELIVERY = pa.schema(
    [
        pa.field("delivery_id", _DELIVERY_ID, nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("rule_version", pa.string(), nullable=False),
        pa.field("bus", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
        pa.field("partition_id", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("order_key", pa.string()),
        pa.field("not_before", _TIME),
        pa.field("published_at", _TIME, nullable=False),
        pa.field("arrived_at", _TIME, nullable=False),
        pa.field("event_file", pa.string(), nullable=False),  # buffer file that holds the event
        pa.field("event_row", pa.int32(), nullable=False),  # row in that file, from 0
        pa.field("payload", pa.binary()),
        pa.field("content_type", pa.string()),
        pa.field("headers", pa.string()),  # JSON object of further headers (ce-* in binary mode), or null
        pa.field("failure", pa.string()),  # why the transform failed; null = rendered
    ]
)

#: outcomes/: one row per attempt that a push task made (or per delivery it dead-lettered without sending).
OUTCOME = pa.schema(
    [
        pa.field("delivery_id", _DELIVERY_ID, nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),  # 1 = the first ever, over all batches; 0 = nothing was sent
        pa.field("sent", pa.bool_(), nullable=False),
        pa.field("started_at", _TIME, nullable=False),
        pa.field("duration_ms", pa.float64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),  # delivered | retry_scheduled | dead_lettered | unknown
        pa.field("due_at", _TIME),  # retry_scheduled
        pa.field("reason", pa.string()),  # retry_scheduled, dead_lettered: why
        pa.field("code", pa.int32()),  # HTTP status
        pa.field("error_class", pa.string()),
        pa.field("error", pa.string()),
        pa.field("response_head", pa.binary()),  # first 20 KB of the response
    ]
)

#: settlements/: one row per delivery of a batch, with its status.
SETTLEMENT = pa.schema(
    [
        pa.field("delivery_id", _DELIVERY_ID, nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("chunk_id", pa.int32()),  # null: never in a chunk (its transform failed)
        pa.field("file", pa.string(), nullable=False),  # delivery file
        pa.field("row", pa.int32(), nullable=False),  # row in that file, from 0
        pa.field("status", pa.string(), nullable=False),  # delivered | dead_lettered | retry_scheduled | unknown
        pa.field("attempts", pa.int32(), nullable=False),  # attempts so far, over all batches
        pa.field("due_at", _TIME),  # retry_scheduled, unknown: when it may be tried again
        pa.field("lane", pa.string()),  # retry_scheduled, unknown: the lane that retries it, always slow
        pa.field("hold_reason", pa.string()),  # retry_scheduled, unknown: why it is on hold; null = due at due_at
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("published_at", _TIME, nullable=False),
        pa.field("arrived_at", _TIME, nullable=False),
        pa.field("not_before", _TIME),  # when it could first be sent; null = on arrival
        pa.field("settled_at", _TIME),  # when the deciding response came; null = no attempt was made
    ]
)

#: The number of rows per row group of a buffer file, the unit in which route reads and at which slices may begin.
ROW_GROUP_ROWS = 2_000

ATTEMPT = pa.struct(
    [
        pa.field("number", pa.int32()),
        pa.field("started_at", _TIME),
        pa.field("duration_ms", pa.float64()),
        pa.field("outcome", pa.string()),
        pa.field("code", pa.int32()),
        pa.field("error_class", pa.string()),
        pa.field("error", pa.string()),
        pa.field("response_head", pa.binary()),
    ]
)

#: dead_letters/: the complete record of every dead letter.
DEAD_LETTER = pa.schema(
    [
        pa.field("delivery_id", _DELIVERY_ID),  # null: malformed or not routable, so it never became a delivery
        pa.field("rule", pa.string()),
        pa.field("rule_version", pa.string()),
        pa.field("bus", pa.string(), nullable=False),
        pa.field("target", pa.string()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
        pa.field("partition_id", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("event_id", pa.string()),
        pa.field("event", pa.binary(), nullable=False),  # complete, as it arrived
        pa.field("request", pa.binary()),  # as transformed; null: there was no request
        pa.field("request_content_type", pa.string()),
        pa.field("request_headers", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("attempts", pa.list_(ATTEMPT), nullable=False),
        pa.field("arrived_at", _TIME, nullable=False),
        pa.field("first_attempt_at", _TIME),
        pa.field("last_attempt_at", _TIME),
        pa.field("batch_id", pa.string(), nullable=False),
    ]
)

#: index/: one row per id and archive file with a message that has the id, sorted by hash (`event.ids.event_id_hash`).
EVENT_INDEX = pa.schema(
    [
        pa.field("hash", pa.int64(), nullable=False),
        pa.field(
            "file", pa.int32(), nullable=False
        ),  # row of INDEXED_FILES, in the file `layout.indexed_files`, from 0
    ]
)

#: index/...-files: the archive files to which the rows of EVENT_INDEX refer.
INDEXED_FILES = pa.schema(
    [pa.field("batch_id", pa.string(), nullable=False), pa.field("path", pa.string(), nullable=False)]
)

#: compacted/lists/: the files that a compaction has copied into larger ones, and where their bytes are.
COMPACTED_FILES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # before the compaction
        pa.field("file", pa.string(), nullable=False),  # that now contains its bytes
        pa.field("start", pa.int64(), nullable=False),  # its first byte in that file
        pa.field("size", pa.int64(), nullable=False),  # in bytes
        pa.field("first_row", pa.int64(), nullable=False),  # its first row in that file; 0 if it has no rows
    ]
)

_OF_FOLDER = {
    "buffer": BUFFER,
    "canary": BUFFER,
    "deliveries": DELIVERY,
    "outcomes": OUTCOME,
    "settlements": SETTLEMENT,
    "dead_letters": DEAD_LETTER,
}


def schema_of(path: str) -> pa.Schema:
    """Return the schema of the files in a path's topmost folder. Raises ValueError for a folder without tables."""
    schema = find_schema(path)
    if schema is None:
        raise ValueError(f"{path}: tables belong below {', '.join(_OF_FOLDER)}; pass a schema for any other")
    return schema


def find_schema(path: str) -> pa.Schema | None:
    """Return the schema of the files in a path's topmost folder; None if each file has its own.

    The folder `sql` next to deliveries holds the results of Spark SQL for them.
    """
    topmost, *within = path.split("/")
    return None if "sql" in within[:-1] else _OF_FOLDER.get(topmost)
