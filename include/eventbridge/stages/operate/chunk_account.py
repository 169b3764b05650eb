"""One chunk of a batch as a person looks at it: its pieces, some at a time, and what their pushes were answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.cursor import read_number_cursors, write_name_cursor
from eventbridge.stages.operate.audit import find_batch
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import is_of_shift, segments
from eventbridge.store import schemas
from eventbridge.store.parquet import read_rows, read_table

#: Attempts that a page tells of at most, those that were not delivered first.
MOST_ATTEMPTS = 200
#: Pieces of a page at most, and files of deliveries that they lie in.
MOST_PIECES, MOST_FILES = 200, 20

_COLUMNS = ["delivery_id", "rule", "target", "attempt", "started_at", "duration_ms", "outcome", "code", "error_class"]


@dataclass(frozen=True)
class ChunkAttempt:
    """One attempt; `event_id` "": its delivery is past its retention."""

    event_id: str
    delivery_id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class ChunkAccount:
    """A page of a chunk: some of its pieces, and some of the `total` attempts that are known of them.

    `first`: how many pieces, and attempts of these, the pages before have told. `cursor`: None if this is the last.
    """

    batch: Batch
    chunk: Chunk
    pieces: tuple[Piece, ...]
    attempts: tuple[ChunkAttempt, ...]
    total: int
    first: tuple[int, int]
    cursor: str | None
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class _Deliveries:
    """The deliveries of pieces, and the rules and targets of those pieces whose files cannot be read."""

    rows: pa.Table
    lost: frozenset[tuple[str, str]]

    def events(self, wanted: pa.ChunkedArray) -> dict[bytes, str]:
        """Return the events of the wanted ones of them."""
        found = self.rows.filter(pc.is_in(self.rows["delivery_id"], value_set=wanted))
        return dict(zip(found["delivery_id"].to_pylist(), found["event_id"].to_pylist(), strict=True))

    def attempts(self, rows: pa.Table) -> pa.Table:
        """Return the attempts of them, and those that may be of one that cannot be read."""
        fits = pc.is_in(rows["delivery_id"], value_set=self.rows["delivery_id"])
        for rule, target in self.lost:
            fits = pc.or_(fits, pc.and_(pc.equal(rows["rule"], rule), pc.equal(rows["target"], target)))
        return rows.filter(fits)


def chunk_account(work: Runtime, batch: str, chunk_id: int, after: str | None = None) -> ChunkAccount:
    """Return a chunk of the batch whose id begins with `batch`, from behind a cursor on.

    Raises NotFoundError, and UserError for what is no cursor.
    """
    start, told = read_number_cursors(after, 2) if after else (0, 0)
    found = work.ledger.batch(find_batch(work, batch))
    chunk = work.ledger.chunk(found.batch_id, chunk_id)
    pieces = _some(chunk.pieces[start:])
    files = segments(work, found.batch_id, chunk_id)
    unreadable: list[str] = []
    rows = _attempts(work, files, unreadable)
    deliveries = _deliveries(work, pieces)
    if len(pieces) < len(chunk.pieces) or any(is_of_shift(file) for file in files):
        rows = deliveries.attempts(rows)
    shown = rows.slice(told, MOST_ATTEMPTS)
    events = deliveries.events(shown["delivery_id"])
    attempts = tuple(
        ChunkAttempt(events.get(row["delivery_id"], ""), delivery_id_text(row["delivery_id"]), row)
        for row in shown.to_pylist()
    )
    cursor = None
    if told + len(attempts) < rows.num_rows:
        cursor = write_name_cursor(str(start), str(told + len(attempts)))
    elif start + len(pieces) < len(chunk.pieces):
        cursor = write_name_cursor(str(start + len(pieces)), "0")
    return ChunkAccount(found, chunk, pieces, attempts, rows.num_rows, (start, told), cursor, tuple(unreadable))


def chunk_of_push(work: Runtime, batch_id: str, map_index: int) -> int:
    """Return the chunk that a mapped push of a batch's run has; its first one for a place that nobody has."""
    chunks = work.ledger.chunks(batch_id)
    return next((each.chunk_id for each in chunks if each.map_index == map_index), chunks[0].chunk_id if chunks else 0)


def _some(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the first pieces, as many as a page has."""
    files: set[str] = set()
    for count, piece in enumerate(pieces[:MOST_PIECES]):
        files.add(piece.file)
        if len(files) > MOST_FILES:
            return tuple(pieces[:count])
    return tuple(pieces[:MOST_PIECES])


def _attempts(work: Runtime, files: Sequence[BatchFile], unreadable: list[str]) -> pa.Table:
    """Return what segments have, attempts that did not deliver first."""
    tables = []
    for file in files:
        if file.path is not None:
            try:
                tables.append(read_table(work.store, file.path, [*_COLUMNS, "error"]))
            except StoreError as error:
                unreadable.append(str(error))
    table = pa.concat_tables(tables) if tables else schemas.OUTCOME.empty_table()
    delivered = pc.equal(table["outcome"], "Delivered")
    return table.take(pc.sort_indices(pa.table({"delivered": delivered}), [("delivered", "ascending")]))


def _deliveries(work: Runtime, pieces: Sequence[Piece]) -> _Deliveries:
    """Return the deliveries of pieces; each file is opened once."""
    by_file: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_file.setdefault(piece.file, []).append(piece)
    columns = ["delivery_id", "event_id"]
    tables = [pa.schema([schemas.DELIVERY.field(name) for name in columns]).empty_table()]
    lost: set[tuple[str, str]] = set()
    for file, those in by_file.items():
        numbers = np.concatenate([row_vectors.decode(piece.rows) for piece in those])
        try:
            tables.append(read_rows(work.store, file, row_vectors.encode(numbers), columns))
        except StoreError:  # past its retention
            lost |= {(piece.rule, piece.target) for piece in those}
    return _Deliveries(pa.concat_tables(tables), frozenset(lost))
