"""The deliveries that a batch must account for, file by file, and the chunk of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.model import row_vectors, rowset
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.row_vectors import Rows
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_CODE, column_of
from eventbridge.store.parquet import read_table

_TEXTS = ("rule", "target", "failure")


def batch_deliveries(runtime: Runtime, batch: Batch, columns: Sequence[str]) -> Iterator[tuple[str, Rows, pa.Table]]:
    """Yield (file, row numbers, rows) for all deliveries of a batch; rule, target and failure are dictionary-coded.

    A batch that was routed accounts for all rows of its delivery files, one that took up pending deliveries for the
    rows in its chunks.
    """
    coded = [name for name in columns if name in _TEXTS]
    if batch.routes:
        for file in runtime.ledger.files(batch.batch_id, "delivery"):
            if file.path is not None:
                table = read_table(runtime.store, file.path, columns, coded=coded)
                yield file.path, np.arange(table.num_rows), table
        return
    for path, pieces in _by_file(runtime.ledger.chunks(batch.batch_id)).items():
        numbers = np.concatenate([row_vectors.decode(piece.rows) for _, piece in pieces])
        wanted = np.unique(numbers)
        table = read_deliveries(runtime.store, path, row_vectors.encode(wanted), columns, coded=coded)
        # a row that is named twice is yielded twice: a doubled delivery must show in the reconciliation
        yield path, numbers, table.take(column_of(np.searchsorted(wanted, numbers), pa.int64()))


class ChunkPlaces:
    """Finds the chunks of rows of delivery files, and their number of earlier attempts."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self._pieces = _by_file(chunks)

    def of(self, file: str, rows: Rows) -> tuple[Rows, Rows]:
        """Return for each row the index of its chunk in `chunks`, NO_CODE if it has none, and its earlier attempts."""
        chunk_of = np.full(int(rows.max(initial=-1)) + 1, NO_CODE)
        attempts = np.zeros(len(chunk_of), np.int64)
        for number, piece in self._pieces.get(file, ()):
            for run in rowset.runs(piece.rows):
                chunk_of[run.start : run.stop] = number
                attempts[run.start : run.stop] = piece.attempts
        return chunk_of[rows], attempts[rows]


def _by_file(chunks: Iterable[Chunk]) -> dict[str, list[tuple[int, Piece]]]:
    """Return the pieces of each delivery file, each with the index of its chunk."""
    found: dict[str, list[tuple[int, Piece]]] = defaultdict(list)
    for number, chunk in enumerate(chunks):
        for piece in chunk.pieces:
            found[piece.file].append((number, piece))
    return found
