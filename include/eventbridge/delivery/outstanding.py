"""Reads those deliveries of a chunk that have no final outcome, and defines the report of a target's run.

Each delivery file is read once, however many pieces refer to it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.delivery.queue_copies import read_deliveries
from eventbridge.delivery.segments import BestOutcome, Responses, best_outcomes
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import rowset
from eventbridge.model.chunk import Piece
from eventbridge.policy.delivery_windows import deadline_of
from eventbridge.policy.response_to_outcome import age_begins
from eventbridge.store.columns import codes_of, ids_of
from eventbridge.store.protocol import Store
from eventbridge.targets.protocol import Request

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, eq=False)
class Item:
    """One delivery of the chunk and its number of earlier attempts; its age is measured from `arrived_at`.

    Only the thread of its run changes `attempts` and `due_at`. It changes them in place, because making a changed copy
    for each attempt took a third as long as sending the request.
    """

    delivery_id: bytes
    rule: str
    target: str
    request: Request
    arrived_at: datetime
    attempts: int
    on_hold_seconds: float
    due_at: datetime | None = None  # None if it is due immediately
    not_before: datetime | None = None
    deadline_at: datetime | None = None  # None if it has no deadline


#: The columns of a delivery file that `items_of` needs.
ITEM_COLUMNS = [
    "delivery_id", "arrived_at", "payload", "content_type", "headers", "order_key", "failure", "not_before",
    "published_at",
]  # fmt: skip


class ItemValues:
    """The columns `ITEM_COLUMNS` of adjacent rows as Python values, converted when first needed.

    The pieces of one file share them, because converting two rows takes as long as converting a hundred rows.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @cached_property
    def columns(self) -> list[list[Any]]:
        """A list for each column. `published_at`, which few targets need, is in whole microseconds since 1970."""
        return [
            _microseconds(self._table.column(name)) if name == "published_at" else _objects(self._table.column(name))
            for name in ITEM_COLUMNS
        ]

    def rows(self, start: int, count: int) -> Iterator[tuple[Any, ...]]:
        """Yield `count` rows, beginning with the row `start`."""
        return zip(*(column[start : start + count] for column in self.columns), strict=True)


def items_of(
    rows: Iterable[tuple[Any, ...]],
    piece: Piece,
    done: Mapping[bytes, BestOutcome],
    first: int,
    within_seconds: float | None = None,
) -> Iterator[Item]:
    """Yield those deliveries of a piece that are still to be sent, from the columns `ITEM_COLUMNS` of its rows.

    Rows with a failure, and rows with an outcome other than `unknown` in `done`, are omitted. Requests are numbered
    by row, from `first` on. `within_seconds` is the target's `deliver_within`.
    """
    for number, row in enumerate(rows, first):
        delivery_id, arrived_at, payload, content_type, headers, order_key, failure, not_before, published = row
        if failure is not None:
            continue
        attempts = piece.attempts
        if done and (seen := done.get(delivery_id)) is not None:
            if seen.status != "unknown":
                continue
            attempts = max(attempts, seen.attempts)
        request = Request(
            number,
            delivery_id_text(delivery_id),
            payload or b"",
            content_type or "",
            json.loads(headers) if headers else {},
            order_key,
        )
        begins = age_begins(arrived_at, not_before)
        made = Item(
            delivery_id, piece.rule, piece.target, request, begins, attempts, piece.on_hold_seconds, None, not_before
        )
        if within_seconds is not None:
            made.deadline_at = deadline_of(_EPOCH + timedelta(microseconds=published), within_seconds)
        yield made


@dataclass
class TargetReport:
    """The result of a target's run; `spent` is True if it ended with work left because its budget was spent."""

    rule: str
    target: str
    total: int
    delivered: int = 0
    dead_lettered: int = 0
    retried: int = 0
    sent: int = 0  # how many of `total` this push sent
    held_up: bool = False  # the breaker, a rate limit or a pause prevented deliveries from being sent
    spent: bool = False
    late: bool = False  # the run began when more than half of the budget was spent
    gone: bool = False
    responses: int = 0  # attempts that were recorded, with or without a response
    slow: int = 0  # how many of `responses` were slow
    no_response: int = 0  # how many of `slow` had no response
    crashed: BaseException | None = None

    @property
    def settled(self) -> int:
        """The number of deliveries with a final outcome."""
        return self.delivered + self.dead_lettered


def request_of(row: dict[str, Any]) -> Request:
    """Return the request in a row of a delivery file."""
    return Request(
        index=0,
        delivery_id=delivery_id_text(row["delivery_id"]),
        payload=row["payload"] or b"",
        content_type=row["content_type"] or "",
        headers=json.loads(row["headers"]) if row["headers"] else {},
        order_key=row["order_key"],
    )


def _microseconds(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = column.cast(pa.int64()).to_numpy().tolist()
    return found


def _objects(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values, in a tenth of the time of `to_pylist`."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_timestamp(column.type):
        found: list[Any] = column.to_numpy().tolist()
        return found
    # There are few distinct times, because events that arrived together have the same time.
    times: dict[int | None, datetime | None] = {None: None}
    micros = column.cast(pa.int64()).to_pylist()
    for each in set(micros) - {None}:
        times[each] = _EPOCH + timedelta(microseconds=each)
    return [times[each] for each in micros]


#: The final statuses. `retry_scheduled` is not final, because such a delivery may block others of its order key.
_FINAL_STATUSES = ("delivered", "dead_lettered")


@dataclass(frozen=True)
class ReadPiece:
    """The `count` deliveries of a piece, and the number of the first request.

    Each delivery of a chunk has its own number. `make_rows` returns the deliveries as a table with `ITEM_COLUMNS`,
    `make_values` as Python values; each is called only when needed.
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
        for read in _read_piece(store, file, of_file, first):
            found.append(read)
            first += read.count
    return found


def select_outstanding(
    read: Sequence[ReadPiece], responses: Responses
) -> tuple[list[ReadPiece], dict[bytes, BestOutcome]]:
    """Return the pieces that have a delivery without a final outcome, and the best outcomes of their deliveries.

    The rows of other pieces never become Python values. This matters in streaming mode, in which nearly every delivery
    has a response when its batch is closed.
    """
    kept: list[ReadPiece] = []
    done: dict[bytes, BestOutcome] = {}
    parts = [part for each in read for part in each.rows["delivery_id"].chunks]
    found = responses.rows_of(ids_of(pa.chunked_array(parts, pa.binary(16))))  # typed, because a chunk may have none
    codes, names = codes_of(found["status"])
    is_last = np.isin(codes, [code for code, name in enumerate(names) if name in _FINAL_STATUSES])
    start = 0
    for each in read:
        if not is_last[start : start + each.count].all():
            kept.append(each)
            done |= best_outcomes(found.slice(start, each.count))
        start += each.count
    return kept, done


def _read_piece(store: Store, file: str, pieces: Sequence[Piece], first: int) -> Iterator[ReadPiece]:
    if len(pieces) == 1:
        rows = read_deliveries(store, file, pieces[0].rows, ITEM_COLUMNS)
        yield _piece(pieces[0], rows, rows.num_rows, first, ItemValues(rows), 0)
        return
    numbers = [_numbers(piece.rows) for piece in pieces]
    in_given_order = np.concatenate(numbers)
    wanted = np.unique(in_given_order)
    table = read_deliveries(store, file, rowset.encode(wanted.tolist()), ITEM_COLUMNS)
    if not np.array_equal(wanted, in_given_order):  # pieces are interleaved, but each needs adjacent rows
        table = table.take(np.searchsorted(wanted, in_given_order))
    values, start = ItemValues(table), 0
    for piece, count in zip(pieces, map(len, numbers), strict=True):
        yield _piece(piece, table, count, first + start, values, start)
        start += count


def _piece(piece: Piece, table: pa.Table, count: int, first: int, values: ItemValues, start: int) -> ReadPiece:
    """Return a piece; `table` and `values` hold all rows of the chunk in one file, and the rows of the piece begin at
    `start`."""
    return ReadPiece(piece, count, first, partial(table.slice, start, count), partial(values.rows, start, count))


def _numbers(rows: str) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(run.start, run.stop) for run in rowset.runs(rows))])
