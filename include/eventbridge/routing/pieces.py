"""Divides the rows that a delivery file has for one target into pieces for chunks, and determines order keys.

A piece of an ordered target has rows of one shard only.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from eventbridge.event.json_document import JsonValue
from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedPiece
from eventbridge.model.partition import Partition
from eventbridge.policy.ordering import SINGLE_KEY, shard_of
from eventbridge.rules import Target
from eventbridge.transform import find_order_key

if TYPE_CHECKING:
    from eventbridge.routing.events import SliceEvents  # it imports the kernel, which redrives do not need

#: The head of a piece: pool, weight, rule, target.
Head = tuple[str, int, str, str]
#: The value of `waits` for a row that need not wait.
NO_WAIT: Final = 0

#: The shard of every delivery whose target is not ordered.
UNORDERED = -1


@dataclass(frozen=True)
class PieceLimits:
    """The maximum number of deliveries in a piece, and their maximum total size; a single delivery may be larger."""

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
    """Divide the rows of one target, or of one order shard, into pieces; an oversized payload is a piece of its own.

    `waits` is the time, in microseconds since 1970, until which each row waits, or NO_WAIT. A piece has only rows that
    wait or only rows that do not; it waits until the earliest time of its rows. In a shard, whose rows keep their
    order, a piece may have both kinds of rows, and waits only if all its rows wait.
    """
    if shard is not None:
        return list(_ordered_pieces(head, rows, sizes, waits, limits, shard))
    later = waits != NO_WAIT
    pieces = list(_cut_pieces(head, rows[~later], sizes[~later], limits))
    if later.any():
        by_time = np.argsort(waits[later], kind="stable")  # so that the rows of a piece wait for similar times
        rows, sizes, waits = rows[later][by_time], sizes[later][by_time], waits[later][by_time]
        done = 0
        for piece in _cut_pieces(head, rows, sizes, limits):
            pieces.append(structs.replace(piece, not_before=int(waits[done])))
            done += piece.count
    return pieces


def _ordered_pieces(
    head: Head,
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    waits: npt.NDArray[np.int64],
    limits: PieceLimits,
    shard: int,
) -> Iterator[RoutedPiece]:
    done = 0
    for piece in _cut_pieces(head, rows, sizes, limits):
        piece_waits = waits[done : done + piece.count]
        done += piece.count
        wait = int(piece_waits.min()) if (piece_waits != NO_WAIT).all() else None
        yield structs.replace(piece, shard=shard, not_before=wait)


def _cut_pieces(
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


def order_key(target: Target, document: JsonValue, row: dict[str, Any]) -> str | None:
    """Return the order key of a delivery; None if its target is not ordered. `row` has the position of its event."""
    if not target.ordered:
        return None
    if target.ordering_key is None:
        return SINGLE_KEY
    if target.ordering_key == "partition":
        return _partition_key(Partition(row["topic"], row["broker"], row["partition_id"]))
    return find_order_key(target.ordering_key, document) or SINGLE_KEY


def order_keys(
    targets: Sequence[Target], counts: npt.NDArray[np.int64], events: SliceEvents, numbers: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the order keys of deliveries that are sorted by target; null if the target is not ordered.

    `counts` are the numbers of deliveries of the targets.
    """
    if not any(target.ordered for target in targets):
        return pa.nulls(len(numbers), pa.string())
    parts = []
    first = 0
    for target, count in zip(targets, counts.tolist(), strict=True):
        parts.append(_keys_of(target, events, numbers[first : first + count]))
        first += count
    return pa.concat_arrays(parts)


def shards_of(keys: pa.Array) -> npt.NDArray[np.int16]:
    """Return the shard of each key, or UNORDERED for null."""
    if keys.null_count == len(keys):
        return np.full(len(keys), UNORDERED, np.int16)
    found = keys.dictionary_encode()
    shards = np.array([shard_of(key) for key in found.dictionary.to_pylist()], np.int16)
    codes = found.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(keys.is_null().to_numpy(zero_copy_only=False), UNORDERED, shards[codes]).astype(np.int16)


def group_by_shard(rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[int | None, list[tuple[int, dict[str, Any]]]]:
    """Group numbered delivery rows of a target by shard; the shard is None if the target is not ordered."""
    shards: dict[int | None, list[tuple[int, dict[str, Any]]]] = {}
    for number, row in rows:
        key = row["order_key"]
        shards.setdefault(None if key is None else shard_of(key), []).append((number, row))
    return shards


def _keys_of(target: Target, events: SliceEvents, numbers: npt.NDArray[np.int64]) -> pa.Array:
    if not target.ordered:
        return pa.nulls(len(numbers), pa.string())
    if target.ordering_key is None:
        return pa.array([SINGLE_KEY] * len(numbers), pa.string())
    if target.ordering_key == "partition":
        columns = events.columns.select(["topic", "broker", "partition_id"]).take(pa.array(numbers)).to_pylist()
        return pa.array([_partition_key(Partition(**row)) for row in columns], pa.string())
    path = target.ordering_key
    found = (find_order_key(path, events.parse(number).document) for number in numbers.tolist())
    return pa.array([key or SINGLE_KEY for key in found], pa.string())


def _partition_key(partition: Partition) -> str:
    return f"{partition.topic}/{partition.broker}/{partition.partition_id}"
