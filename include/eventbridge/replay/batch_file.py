"""The input file of a replay batch: archived events as they were landed, but with the batch's time of publishing.

Their age, and the time of `deliver_within`, begin then.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from eventbridge.model.batch import Batch, BatchFile
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout, schemas
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.schemas import ROW_GROUP_ROWS

_KEY = "replay"
_ORDER = [(name, "ascending") for name in ("topic", "broker", "partition_id", "offset")]


def write_events(runtime: Runtime, batch: Batch, tables: Sequence[pa.Table]) -> BatchFile:
    """Write events, in bus order, as the buffer file of a batch; return its record."""
    events = pa.concat_tables(tables).sort_by(_ORDER)
    for name in ("published_at", "arrived_at"):
        column = schemas.BUFFER.get_field_index(name)
        times = pa.repeat(pa.scalar(batch.planned_at, schemas.BUFFER.field(column).type), events.num_rows)
        events = events.set_column(column, schemas.BUFFER.field(column), times)
    events = events.cast(schemas.BUFFER)
    path = layout.buffer(batch.bus, batch.planned_at, batch.batch_id, uuid.uuid4().hex)
    write_table(runtime.store, path, events, row_group_rows=ROW_GROUP_ROWS)
    return BatchFile(batch.batch_id, "buffer", _KEY, path, events.num_rows)


def is_of_events(batch: Batch, file: BatchFile) -> bool:
    """Return whether a file is the input of a replay batch."""
    return batch.kind == "replay" and file.kind == "buffer" and file.key == _KEY


def make_again(runtime: Runtime, batch: Batch) -> BatchFile:
    """Write the input of a replay batch again under another name: the same rows from the same archive files."""
    taken = runtime.ledger.replayed_by(batch.batch_id)
    return write_events(
        runtime, batch, [read_rows(runtime.store, each.file, each.rows) for each in taken if each.count]
    )
