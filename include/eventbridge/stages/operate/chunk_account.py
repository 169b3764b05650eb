"""One chunk of a batch as a person looks at it: its pieces, and what its push was answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.stages.operate.audit import find_batch
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import segments
from eventbridge.store.parquet import read_rows, read_table

#: Attempts that are told of at most, those that were not delivered first.
MOST_ATTEMPTS = 200

_COLUMNS = ["delivery_id", "rule", "target", "attempt", "started_at", "duration_ms", "outcome", "code", "error_class"]


@dataclass(frozen=True)
class ChunkAttempt:
    """One attempt; `event_id` "": its delivery is past its retention."""

    event_id: str
    delivery_id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class ChunkAccount:
    """A chunk; `total` counts the attempts that its pushes wrote down, of which `attempts` has the first."""

    batch: Batch
    chunk: Chunk
    attempts: tuple[ChunkAttempt, ...]
    total: int
    unreadable: tuple[str, ...]


def chunk_account(work: Runtime, batch: str, chunk_id: int) -> ChunkAccount:
    """Return a chunk of the batch whose id begins with `batch`; raises NotFoundError."""
    found = work.ledger.batch(find_batch(work, batch))
    chunk = work.ledger.chunk(found.batch_id, chunk_id)
    unreadable: list[str] = []
    tables = []
    for file in segments(work, found.batch_id, chunk_id):
        if file.path is not None:
            try:
                tables.append(read_table(work.store, file.path, [*_COLUMNS, "error"]))
            except StoreError as error:
                unreadable.append(str(error))
    rows = _failed_first(pa.concat_tables(tables)) if tables else None
    shown = rows.slice(0, MOST_ATTEMPTS).to_pylist() if rows is not None else []
    events = _events(work, chunk, {row["delivery_id"] for row in shown})
    attempts = tuple(
        ChunkAttempt(events.get(row["delivery_id"], ""), delivery_id_text(row["delivery_id"]), row) for row in shown
    )
    return ChunkAccount(found, chunk, attempts, 0 if rows is None else rows.num_rows, tuple(unreadable))


def chunk_of_push(work: Runtime, batch_id: str, map_index: int) -> int:
    """Return the chunk that a mapped push of a batch's run has; its first one for a place that nobody has."""
    chunks = work.ledger.chunks(batch_id)
    return next((each.chunk_id for each in chunks if each.map_index == map_index), chunks[0].chunk_id if chunks else 0)


def _failed_first(table: pa.Table) -> pa.Table:
    delivered = pc.equal(table["outcome"], "Delivered")
    return table.take(pc.sort_indices(pa.table({"delivered": delivered}), [("delivered", "ascending")]))


def _events(work: Runtime, chunk: Chunk, wanted: set[bytes]) -> dict[bytes, str]:
    """Return the ids of the events of some deliveries."""
    found: dict[bytes, str] = {}
    for piece in chunk.pieces:
        if wanted <= found.keys():
            break
        try:
            rows = read_rows(work.store, piece.file, piece.rows, ["delivery_id", "event_id"])
        except StoreError:  # past its retention
            continue
        found |= dict(zip(rows["delivery_id"].to_pylist(), rows["event_id"].to_pylist(), strict=True))
    return found
