"""Cuts the archive into parts for workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbridge.model.redelivery import ArchiveFile
from eventbridge.policy.archive_cover import Span
from eventbridge.routing.job import ArchiveSpan
from eventbridge.store.schemas import ROW_GROUP_ROWS

#: Rows of one part at most; a part costs 30 ms of Spark beside its work.
_MOST_ROWS = 100_000
#: The minimum number of parts, so that all of Spark's slots have work to the end.
_ENOUGH_PARTS = 16

Found = tuple[ArchiveFile, tuple[Span, ...]]


def parts_of(files: Sequence[Found]) -> list[tuple[ArchiveSpan, ...]]:
    """Return parts of about the same number of rows, in the order of the files, cut at row groups."""
    step = rows_of_part(sum(file.rows for file, _ in files))
    parts: list[tuple[ArchiveSpan, ...]] = []
    part: list[ArchiveSpan] = []
    room = step
    for span in _pieces(files, step):
        rows = span.last - span.first
        if part and rows > room:
            parts.append(tuple(part))
            part, room = [], step
        part.append(span)
        room -= rows
    return [*parts, tuple(part)] if part else parts


def rows_of_part(rows: int) -> int:
    """Return the number of rows of one part: whole row groups."""
    groups = -(-rows // (_ENOUGH_PARTS * ROW_GROUP_ROWS))
    return min(max(groups, 1) * ROW_GROUP_ROWS, _MOST_ROWS)


def turns_of(
    parts: Sequence[tuple[ArchiveSpan, ...]], first: int, rows: int
) -> Iterator[list[tuple[ArchiveSpan, ...]]]:
    """Yield parts in groups of about `rows` rows, at least one part each: a group is one job for Spark.

    The `first` group has about `first` rows, if that is less.
    """
    most = min(first, rows)
    turn: list[tuple[ArchiveSpan, ...]] = []
    count = 0
    for part in parts:
        size = sum(span.last - span.first for span in part)
        if turn and count + size > most:
            yield turn
            turn, count, most = [], 0, rows
        turn.append(part)
        count += size
    if turn:
        yield turn


def _pieces(files: Sequence[Found], step: int) -> Iterator[ArchiveSpan]:
    for file, offsets in files:
        whole = any(start <= file.start and end >= file.end for start, end in offsets)
        for first in range(0, file.rows, step):
            yield ArchiveSpan(file.path, first, min(first + step, file.rows), None if whole else offsets)
