"""Adjacent deliveries of a piece as blocks, for targets that take thousands of deliveries at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.chunk_rows import ReadPiece
from eventbridge.delivery.outstanding import ITEM_COLUMNS, Item, ItemValues, items_of
from eventbridge.model.chunk import Piece

#: Fewer rows are read as Python values, which the pieces of one file share: an Arrow call takes as long as a few rows.
_FEW = 16
_PLACE_OF = {name: place for place, name in enumerate(ITEM_COLUMNS)}
_ID, _ARRIVED_AT, _PAYLOAD, _FAILURE, _NOT_BEFORE = (
    _PLACE_OF[name] for name in ("delivery_id", "arrived_at", "payload", "failure", "not_before")
)


class Block(Protocol):
    """`count` adjacent deliveries."""

    @property
    def piece(self) -> Piece:
        """The piece that the deliveries belong to."""

    @property
    def count(self) -> int:
        """The number of deliveries."""

    @property
    def delivery_ids(self) -> pa.Array:
        """Their ids, 16 bytes each."""

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""

    @property
    def oldest(self) -> datetime:
        """The start of the oldest delivery's age."""

    def part(self, start: int, end: int) -> Block:
        """Return the deliveries from `start` to `end`, which is excluded."""

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""


@dataclass(frozen=True)
class ManyRows:
    """A block with the Arrow columns `ITEM_COLUMNS`; `first` is the number of the first request."""

    piece: Piece
    rows: pa.RecordBatch
    first: int

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return int(self.rows.num_rows)

    @property
    def delivery_ids(self) -> pa.Array:
        """Their ids, 16 bytes each."""
        return self.rows["delivery_id"]

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""
        return self.rows["payload"]

    @property
    def oldest(self) -> datetime:
        """The start of the oldest delivery's age."""
        found: datetime = pc.min(self.rows["arrived_at"]).as_py()
        return found

    def part(self, start: int, end: int) -> ManyRows:
        """Return the deliveries from `start` to `end`, which is excluded."""
        return ManyRows(self.piece, self.rows.slice(start, end - start), self.first + start)

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""
        values = ItemValues(pa.Table.from_batches([self.rows]))
        return items_of(values.rows(0, self.rows.num_rows), self.piece, {}, self.first)


@dataclass(frozen=True)
class FewRows:
    """A block of rows with the values of `ITEM_COLUMNS`; `first` is the number of the first request."""

    piece: Piece
    rows: Sequence[tuple[Any, ...]]
    first: int

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return len(self.rows)

    @cached_property
    def delivery_ids(self) -> pa.Array:
        """Their ids, 16 bytes each."""
        return pa.array([row[_ID] for row in self.rows], pa.binary(16))

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""
        return pa.array([row[_PAYLOAD] for row in self.rows], pa.binary())

    @property
    def oldest(self) -> datetime:
        """The start of the oldest delivery's age."""
        found: datetime = min(row[_ARRIVED_AT] for row in self.rows)
        return found

    def part(self, start: int, end: int) -> FewRows:
        """Return the deliveries from `start` to `end`, which is excluded."""
        if end - start == len(self.rows):
            return self
        return FewRows(self.piece, self.rows[start:end], self.first + start)

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""
        return items_of(self.rows, self.piece, {}, self.first)


def blocks_of(read: ReadPiece) -> Sequence[Block] | None:
    """Return a piece as blocks; None if a row must be handled by itself, because it failed or may have to wait."""
    if read.count < _FEW:
        rows = list(read.each())
        if any(row[_FAILURE] is not None or row[_NOT_BEFORE] is not None for row in rows):
            return None
        return [FewRows(read.piece, rows, read.first)] if rows else []
    table = read.rows
    if table["failure"].null_count < len(table) or table["not_before"].null_count < len(table):
        return None
    blocks, first = [], read.first
    for batch in table.to_batches():
        blocks.append(ManyRows(read.piece, batch, first))
        first += batch.num_rows
    return blocks
