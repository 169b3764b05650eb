"""Reads the deliveries of a chunk from its delivery files: each file once, however many pieces refer to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.delivery.outstanding import ITEM_COLUMNS, ItemValues
from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.delivery.responses import Responses
from eventbridge.delivery.segments import BestOutcome, best_outcomes
from eventbridge.model import rowset
from eventbridge.model.chunk import Piece
from eventbridge.store.columns import codes_of, ids_of
from eventbridge.store.protocol import Store

#: Verdicts that are final. A delivery that is to be retried may block others of its order key.
_LAST = ("delivered", "dead_lettered")


@dataclass(frozen=True)
class ReadPiece:
    """The `count` deliveries of a piece, and the number of the first request.

    Each delivery of a chunk has its own number. `make_rows` returns them as a table with `ITEM_COLUMNS`, `make_values`
    as Python values; each is called only when needed.
    """

    piece: Piece
    count: int
    first: int
    make_rows: Callable[[], pa.Table]
    make_values: Callable[[], Iterable[tuple[Any, ...]]]

    @cached_property
    def rows(self) -> pa.Table:
        """The deliveries as a table."""
        return self.make_rows()

    def each(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values."""
        return iter(self.make_values())


def read_pieces(store: Store, pieces: Sequence[Piece]) -> list[ReadPiece]:
    """Return the deliveries of all pieces; those of one file are adjacent in memory."""
    by_file: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_file[piece.file].append(piece)
    found: list[ReadPiece] = []
    first = 0
    for file, of_file in by_file.items():
        for read in _read(store, file, of_file, first):
            found.append(read)
            first += read.count
    return found


def without_final_outcome(
    read: Sequence[ReadPiece], responses: Responses
) -> tuple[list[ReadPiece], dict[bytes, BestOutcome]]:
    """Return the pieces that have a delivery without a final outcome, and the best outcomes of their deliveries.

    In streaming mode, nearly every delivery of a batch has a response when the batch is closed: those never become
    Python values.
    """
    kept: list[ReadPiece] = []
    done: dict[bytes, BestOutcome] = {}
    parts = [part for each in read for part in each.rows["delivery_id"].chunks]
    found = responses.of(ids_of(pa.chunked_array(parts, pa.binary(16))))  # typed, as a chunk may have none
    codes, names = codes_of(found["verdict"])
    is_last = np.isin(codes, [code for code, name in enumerate(names) if name in _LAST])
    start = 0
    for each in read:
        if not is_last[start : start + each.count].all():
            kept.append(each)
            done |= best_outcomes(found.slice(start, each.count))
        start += each.count
    return kept, done


def _read(store: Store, file: str, pieces: Sequence[Piece], first: int) -> Iterator[ReadPiece]:
    if len(pieces) == 1:
        rows = read_deliveries(store, file, pieces[0].rows, ITEM_COLUMNS)
        yield _piece(pieces[0], rows, rows.num_rows, first, ItemValues(rows), 0)
        return
    numbers = [_numbers(piece.rows) for piece in pieces]
    in_given_order = np.concatenate(numbers)
    wanted = np.unique(in_given_order)
    table = read_deliveries(store, file, rowset.encode(wanted.tolist()), ITEM_COLUMNS)
    if not np.array_equal(wanted, in_given_order):  # pieces are interleaved: each gets adjacent rows
        table = table.take(np.searchsorted(wanted, in_given_order))
    values, start = ItemValues(table), 0
    for piece, count in zip(pieces, map(len, numbers), strict=True):
        yield _piece(piece, table, count, first + start, values, start)
        start += count


def _piece(piece: Piece, table: pa.Table, count: int, first: int, values: ItemValues, start: int) -> ReadPiece:
    """Return a piece; `table` and `values` hold all rows of the chunk in one file, and the piece's rows begin at
    `start`.
    """
    return ReadPiece(piece, count, first, partial(table.slice, start, count), partial(values.rows, start, count))


def _numbers(rows: str) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(run.start, run.stop) for run in rowset.runs(rows))])
