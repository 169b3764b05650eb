"""The files of batches, the newest batch's first, read only as far as somebody looks; where a page of them ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from eventbridge.model.batch import BatchKind, FileKind, FilePlace
from eventbridge.model.cursor import PagePosition
from eventbridge.model.storage import Kept
from eventbridge.runtime.runtime import Runtime

_AT_ONCE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def newest_files(runtime: Runtime, kind: FileKind, what: Kept) -> Iterator[FilePlace]:
    """Yield the recorded files of a kind of all batches that have `what`, those of the newest batch first."""
    yield from _behind(runtime, kind, what, None, None, None)


def files_from(
    runtime: Runtime,
    kind: FileKind,
    what: Kept,
    place: PagePosition | None,
    *,
    bus: str | None = None,
    batch_kind: BatchKind | None = None,
) -> Iterator[FilePlace]:
    """Yield what `newest_files` yields, from the file of a place on, which comes first if it is still there.

    `bus`, `batch_kind`: only of batches of these; None: of all.
    """
    behind = None
    if place is not None:
        behind = FilePlace(_EPOCH + place.planned_at * _MICROSECOND, place.batch_id, place.key, "")
        for each in runtime.ledger.files(place.batch_id, kind):
            if each.key == place.key and each.path is not None:
                yield FilePlace(behind.planned_at, each.batch_id, each.key, each.path)
    yield from _behind(runtime, kind, what, bus, batch_kind, behind)


def place_of(file: FilePlace, row: int = -1) -> PagePosition:
    """Return the place of a row of a file; -1: before its first row."""
    return PagePosition((file.planned_at - _EPOCH) // _MICROSECOND, file.batch_id, file.key, row)


def rows_after(place: PagePosition | None, file: FilePlace) -> int:
    """Return the last row of a file that a place is behind; -1: none."""
    return place.row if place is not None and (place.batch_id, place.key) == (file.batch_id, file.key) else -1


def _behind(
    runtime: Runtime,
    kind: FileKind,
    what: Kept,
    bus: str | None,
    batch_kind: BatchKind | None,
    behind: FilePlace | None,
) -> Iterator[FilePlace]:
    while True:
        found = runtime.ledger.newest_files(kind, what, _AT_ONCE, bus=bus, batch_kind=batch_kind, behind=behind)
        yield from found
        if len(found) < _AT_ONCE:
            return
        behind = found[-1]
