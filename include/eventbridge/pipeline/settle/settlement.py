"""Reads the deliveries that a batch must account for, and reads and writes its settlement, which holds their
statuses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.model import row_vectors, rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.outcome import SettledDelivery, StatusName
from eventbridge.model.row_vectors import Rows
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout, schemas
from eventbridge.store.columns import NO_CODE, codes_of, column_of, flag_column
from eventbridge.store.parquet import TableWriter, count_rows, read_table, write_table

#: The maximum number of rows to buffer while a settlement is written, in addition to its compressed bytes.
_GROUP_ROWS = 50_000

_TEXTS = [field.name for field in schemas.SETTLEMENT if pa.types.is_string(field.type)]


def settlement_key(number: int) -> str:
    """Return the key under which settlement `number` of a batch is recorded."""
    return f"{number:06d}"


def first_settlement(runtime: Runtime, batch: Batch) -> str:
    """Return the key of a batch's first settlement; "" if it has none.

    Read it before anything that depends on a settlement, and pass it to the ledger with the result, because a batch
    that is settled again has a different first settlement.
    """
    return next((file.key for file in runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")), "")


def publish_settlement(runtime: Runtime, batch: Batch, number: int, tables: Iterable[pa.Table], first: str) -> None:
    """Create settlement `number` (0, or a supplement of `first`) unless it exists, and record it.

    The tables have the columns of the SETTLEMENT schema, with dictionary-coded strings.
    """
    path = layout.settlement(batch.planned_at, batch.batch_id, number)
    create_settlement(runtime, path, tables)
    file = BatchFile(batch.batch_id, "settlement", settlement_key(number), path, count_rows(runtime.store, path))
    runtime.ledger.files.record(file, "settling", first)


def create_settlement(runtime: Runtime, path: str, tables: Iterable[pa.Table]) -> bool:
    """Write tables as one settlement file; return False if the file already exists."""
    writer = TableWriter(runtime.store, path, _GROUP_ROWS)
    for table in tables:
        writer.write(table)
    if writer.rows:
        return writer.close(create=True)
    return write_table(runtime.store, path, schemas.SETTLEMENT.empty_table(), create=True)


def settlements(runtime: Runtime, batch_id: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number, rows) of the settlement (0) and its supplements (1, 2, ...); strings are dictionary-coded."""
    for file in runtime.ledger.files.list_for_batch(batch_id, "settlement"):
        if file.path is not None:
            yield int(file.key), read_table(runtime.store, file.path, columns, coded=_coded(columns))


def read_settled_as(
    runtime: Runtime, batch_id: str, statuses: Sequence[StatusName], columns: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number, rows) like `settlements`, but only rows with these statuses; if a file has none, only its statuses
    are read."""
    for file in runtime.ledger.files.list_for_batch(batch_id, "settlement"):
        if file.path is None:
            continue
        codes, names = codes_of(_statuses(runtime, file.path))
        chosen = np.array([name in statuses for name in [*names, ""]])[codes]
        if chosen.any():
            table = read_table(runtime.store, file.path, columns, coded=_coded(columns))
            yield int(file.key), table.filter(flag_column(chosen))


def read_settled(runtime: Runtime, batch_id: str) -> Iterator[SettledDelivery]:
    """Yield every settled delivery of a batch; those in supplements come last."""
    for _, table in settlements(runtime, batch_id, schemas.SETTLEMENT.names):
        yield from records(table)


def records(table: pa.Table) -> Iterator[SettledDelivery]:
    """Yield the rows of a table as records; the table has all columns of the SETTLEMENT schema."""
    return (SettledDelivery(**row) for row in table.to_pylist())


def _statuses(runtime: Runtime, path: str) -> pa.ChunkedArray:
    return read_table(runtime.store, path, ["status"], coded=["status"])["status"]


def _coded(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name in _TEXTS]


_CODED = ("rule", "target", "failure")


def batch_deliveries(runtime: Runtime, batch: Batch, columns: Sequence[str]) -> Iterator[tuple[str, Rows, pa.Table]]:
    """Yield (file, row numbers, rows) for all deliveries of a batch; rule, target and failure are dictionary-coded.

    A batch that was routed accounts for all rows of its delivery files. A batch that took pending deliveries accounts
    for the rows in its chunks.
    """
    coded = [name for name in columns if name in _CODED]
    if batch.has_route_stage:
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
            if file.path is not None:
                table = read_table(runtime.store, file.path, columns, coded=coded)
                yield file.path, np.arange(table.num_rows), table
        return
    for path, pieces in _group_by_file(runtime.ledger.chunks.list_for_batch(batch.batch_id)).items():
        numbers = np.concatenate([row_vectors.decode(piece.rows) for _, piece in pieces])
        wanted = np.unique(numbers)
        table = read_deliveries(runtime.store, path, row_vectors.encode(wanted), columns, coded=coded)
        # a row that occurs twice is yielded twice, so that the reconciliation reveals a duplicated delivery
        yield path, numbers, table.take(column_of(np.searchsorted(wanted, numbers), pa.int64()))


class ChunkRows:
    """Finds the chunk of each row in a delivery file, and the number of earlier attempts at the row's delivery."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self._pieces = _group_by_file(chunks)

    def chunk_indexes(self, file: str, rows: Rows) -> tuple[Rows, Rows]:
        """Return, for each row, the index of its chunk in `chunks` (NO_CODE if it has none) and its earlier
        attempts."""
        chunk_of = np.full(int(rows.max(initial=-1)) + 1, NO_CODE)
        attempts = np.zeros(len(chunk_of), np.int64)
        for number, piece in self._pieces.get(file, ()):
            for run in rowset.runs(piece.rows):
                chunk_of[run.start : run.stop] = number
                attempts[run.start : run.stop] = piece.attempts
        return chunk_of[rows], attempts[rows]


def _group_by_file(chunks: Iterable[Chunk]) -> dict[str, list[tuple[int, Piece]]]:
    """Return the pieces of each delivery file, each with the index of its chunk."""
    found: dict[str, list[tuple[int, Piece]]] = defaultdict(list)
    for number, chunk in enumerate(chunks):
        for piece in chunk.pieces:
            found[piece.file].append((number, piece))
    return found
