"""Splits slices that cannot be routed, down to one event, and makes the records of splits and unroutable events.

Both are recorded like a result, under the slice's name: the first record wins, so that no late result of a slice can
exist beside those of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventbridge.model.batch import BatchFile
from eventbridge.model.file_detail import SplitSlice, UnroutableEvent
from eventbridge.routing.job import Slice

#: Parts of a slice: with 8, one event of 4,000 is found in four steps, of 20,000 in five.
_PARTS = 8


def leaves(piece: Slice, recorded: Mapping[str, BatchFile]) -> Iterator[Slice]:
    """Yield the slice itself or, if it was split, its parts, recursively."""
    file = recorded.get(piece.slice_id)
    if file is None or not isinstance(file.detail, SplitSlice):
        yield piece
        return
    for row_from, row_to in file.detail.parts:
        yield from leaves(_part(piece, row_from, row_to), recorded)


def split_file(batch_id: str, piece: Slice) -> BatchFile:
    """Return the record that a slice of several rows is replaced by its parts."""
    rows = piece.row_to - piece.row_from
    step = max(1, -(-rows // _PARTS))
    starts = range(piece.row_from, piece.row_to, step)
    parts = tuple((start, min(start + step, piece.row_to)) for start in starts)
    return BatchFile(batch_id, "delivery", piece.slice_id, None, 0, SplitSlice(parts))


def unroutable_file(batch_id: str, piece: Slice, error: str) -> BatchFile:
    """Return the record that the only event of a slice cannot be routed: it becomes a dead letter route_failed."""
    event = UnroutableEvent(piece.file, piece.row_from, error)
    return BatchFile(batch_id, "delivery", piece.slice_id, None, 0, event)


def _part(piece: Slice, row_from: int, row_to: int) -> Slice:
    # Named by its rows, so that the slices of a batch, sorted by id, still follow the order of partition and offset.
    landed, _, _ = piece.slice_id.rpartition("/")
    return Slice(f"{landed}/{row_from:06d}-{row_to:06d}", piece.file, row_from, row_to)
