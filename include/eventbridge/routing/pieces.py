"""Cuts the rows of one target of a delivery file into pieces that fit a chunk.

This module must not import the ledger or Spark: Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedPiece

#: The head of a piece: pool, weight, rule, target.
Head = tuple[str, int, str, str]

#: The waiting time of a row that need not wait.
AT_ONCE: Final = 0


@dataclass(frozen=True)
class PieceLimits:
    """The maximum size of a piece."""

    deliveries: int
    size: int

    def is_one_piece(self, count: int, size: int) -> bool:
        """Return whether deliveries of this number and size fit into one piece."""
        return count <= self.deliveries and size <= self.size


def pieces_of(
    head: Head,
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    waits: npt.NDArray[np.int64],
    limits: PieceLimits,
    shard: int | None = None,
) -> list[RoutedPiece]:
    """Return rows of one target, or of one of its order shards, as pieces; a payload larger than a chunk is one alone.

    `waits` is the time, in microseconds since 1970, that each row waits for, AT_ONCE for rows that need not wait: both
    kinds share no piece, but in a shard, whose rows stay in their order; there a piece waits if all its rows do.
    """
    if shard is not None:
        return list(_in_order(head, rows, sizes, waits, limits, shard))
    later = waits != AT_ONCE
    pieces = list(_cut(head, rows[~later], sizes[~later], limits))
    if later.any():
        by_time = np.argsort(waits[later], kind="stable")  # what waits for one time goes together
        rows, sizes, waits = rows[later][by_time], sizes[later][by_time], waits[later][by_time]
        done = 0
        for piece in _cut(head, rows, sizes, limits):
            pieces.append(structs.replace(piece, not_before=int(waits[done])))
            done += piece.count
    return pieces


def _in_order(
    head: Head,
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    waits: npt.NDArray[np.int64],
    limits: PieceLimits,
    shard: int,
) -> Iterator[RoutedPiece]:
    done = 0
    for piece in _cut(head, rows, sizes, limits):
        of_piece = waits[done : done + piece.count]
        done += piece.count
        wait = int(of_piece.min()) if (of_piece != AT_ONCE).all() else None
        yield structs.replace(piece, shard=shard, not_before=wait)


def _cut(
    head: Head, rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], limits: PieceLimits
) -> list[RoutedPiece]:
    ends = np.cumsum(sizes)
    pieces: list[RoutedPiece] = []
    begin, done = 0, 0
    while begin < len(rows):
        fitting = int(np.searchsorted(ends, done + limits.size, side="right"))
        end = max(min(begin + limits.deliveries, fitting), begin + 1)
        size = int(ends[end - 1]) - done
        pieces.append(RoutedPiece(*head, _row_set(rows[begin:end]), end - begin, size))
        begin, done = end, done + size
    return pieces


def _row_set(rows: npt.NDArray[np.int64]) -> str:
    first, last = int(rows.min()), int(rows.max())
    return rowset.run(first, last) if last - first + 1 == len(rows) else rowset.encode(sorted(rows.tolist()))
