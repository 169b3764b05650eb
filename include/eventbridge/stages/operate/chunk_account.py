"""Describes one chunk of a batch page by page: its pieces, and the responses to their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.cursor import read_number_cursors, write_name_cursor
from eventbridge.model.spent import Spent
from eventbridge.stages.operate.audit import find_batch
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import is_of_streaming_task, segments
from eventbridge.store import schemas
from eventbridge.store.parquet import read_rows, read_table

#: Attempts of a page at most, those that failed first.
MOST_ATTEMPTS = 200
#: Pieces of a page at most, and files of deliveries that they lie in.
MOST_PIECES, MOST_FILES = 200, 20
#: Segments that a page reads at most.
MOST_SEGMENTS = 20
#: Deliveries of its pieces, and outcomes of its segments, at most; of one piece, or one segment, all the same.
MOST_ROWS = 40_000

_COLUMNS = [
    "delivery_id",
    "rule",
    "target",
    "attempt",
    "started_at",
    "duration_ms",
    "outcome",
    "code",
    "error_class",
    "reason",
]


@dataclass(frozen=True)
class ChunkAttempt:
    """One attempt; `event_id` "": its delivery is past its retention."""

    event_id: str
    delivery_id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class ChunkAccount:
    """A page of a chunk: some of its pieces, and some of the attempts that are known of these.

    `first`: how many pieces the pages before have told. `has_more`: this page goes on with the attempts of its pieces.
    `cursor`: None if this is the last.
    """

    batch: Batch
    chunk: Chunk
    pieces: tuple[Piece, ...]
    attempts: tuple[ChunkAttempt, ...]
    first: int
    has_more: bool
    cursor: str | None
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """Where attempts are told from: first those that were not delivered, of all segments, then those that were."""

    delivered: int = 0
    segment: int = 0
    row: int = 0


@dataclass(frozen=True)
class _Deliveries:
    """The deliveries of pieces, and the rules and targets of those pieces whose files cannot be read."""

    rows: pa.Table
    lost: frozenset[tuple[str, str]]

    def events(self, wanted: pa.ChunkedArray) -> dict[bytes, str]:
        """Return the events of the wanted ones of them."""
        found = self.rows.filter(pc.is_in(self.rows["delivery_id"], value_set=wanted))
        return dict(zip(found["delivery_id"].to_pylist(), found["event_id"].to_pylist(), strict=True))

    def attempts(self, rows: pa.Table) -> pa.Table:
        """Return the attempts of them, and those that may be of one that cannot be read."""
        fits = pc.is_in(rows["delivery_id"], value_set=self.rows["delivery_id"])
        for rule, target in self.lost:
            fits = pc.or_(fits, pc.and_(pc.equal(rows["rule"], rule), pc.equal(rows["target"], target)))
        return rows.filter(fits)


class _Segments:
    """Reads the attempts of a page's pieces, segment by segment and each once, as far as a page reads."""

    def __init__(self, runtime: Runtime, files: Sequence[BatchFile], deliveries: _Deliveries, *, whole: bool) -> None:
        self._runtime = runtime
        self._files = files
        self._deliveries = deliveries
        self._whole = whole
        self._read: dict[int, pa.Table] = {}
        self.unreadable: list[str] = []

    def page(self, place: _Place) -> tuple[pa.Table, _Place | None]:
        """Return the attempts from a place on that a page tells, and the place of what follows; None: nothing does."""
        told = [schemas.OUTCOME.empty_table().select([*_COLUMNS, "error"])]
        left = MOST_ATTEMPTS
        while place.delivered < 2:
            if place.segment >= len(self._files):
                place = _Place(place.delivered + 1)
                continue
            rows = self._rows(place.segment)
            if rows is None:
                return pa.concat_tables(told), place
            fits = pc.equal(rows["outcome"], "delivered")
            rows = rows.filter(fits if place.delivered else pc.invert(fits))
            told.append(rows.slice(place.row, left))
            left -= told[-1].num_rows
            row = place.row + told[-1].num_rows
            if row < rows.num_rows:
                return pa.concat_tables(told), _Place(place.delivered, place.segment, row)
            place = _Place(place.delivered, place.segment + 1)
        return pa.concat_tables(told), None

    def _rows(self, number: int) -> pa.Table | None:
        """Return the attempts that a segment has of the pieces; None: the page has read enough."""
        if number not in self._read:
            file = self._files[number]
            known = sum(self._files[each].rows for each in self._read)
            if self._read and (len(self._read) >= MOST_SEGMENTS or known + file.rows > MOST_ROWS):
                return None
            self._read[number] = self._of(file)
        return self._read[number]

    def _of(self, file: BatchFile) -> pa.Table:
        columns = [*_COLUMNS, "error"]
        try:
            assert file.path is not None, "a segment has a file"
            rows = read_table(self._runtime.store, file.path, columns)
        except StoreError as error:
            self.unreadable.append(str(error))
            return schemas.OUTCOME.empty_table().select(columns)
        return rows if self._whole and not is_of_streaming_task(file) else self._deliveries.attempts(rows)


def chunk_account(runtime: Runtime, batch: str, chunk_id: int, after: str | None = None) -> ChunkAccount:
    """Return a chunk of the batch whose id begins with `batch`, from behind a cursor on.

    Raises NotFoundError, and UserError for what is no cursor.
    """
    first, *place = read_number_cursors(after, 4) if after else (0, 0, 0, 0)
    found = runtime.ledger.batch(find_batch(runtime, batch))
    chunk = runtime.ledger.chunk(found.batch_id, chunk_id)
    pieces = _some(chunk.pieces[first:])
    names = {f"{piece.rule}/{piece.target}" for piece in pieces}
    files = [
        file for file in segments(runtime, found.batch_id, [chunk_id]) if file.path is not None and _may(file, names)
    ]
    deliveries = _deliveries(runtime, pieces)
    reader = _Segments(runtime, files, deliveries, whole=len(pieces) == len(chunk.pieces))
    shown, following = reader.page(_Place(*place))
    events = deliveries.events(shown["delivery_id"])
    attempts = tuple(
        ChunkAttempt(events.get(row["delivery_id"], ""), delivery_id_text(row["delivery_id"]), row)
        for row in shown.to_pylist()
    )
    cursor = None
    if following is not None:
        cursor = _cursor(first, following)
    elif first + len(pieces) < len(chunk.pieces):
        cursor = _cursor(first + len(pieces), _Place())
    has_more = _Place(*place) != _Place()
    return ChunkAccount(found, chunk, pieces, attempts, first, has_more, cursor, tuple(reader.unreadable))


def chunk_of_push(runtime: Runtime, batch_id: str, map_index: int) -> int:
    """Return the chunk that a mapped push of a batch's run has; its first one for a place that nobody has."""
    chunks = runtime.ledger.chunks(batch_id)
    return next((each.chunk_id for each in chunks if each.map_index == map_index), chunks[0].chunk_id if chunks else 0)


def _cursor(first: int, place: _Place) -> str:
    return write_name_cursor(*map(str, (first, place.delivered, place.segment, place.row)))


def _may(file: BatchFile, names: set[str]) -> bool:
    """Return whether a segment may have outcomes of some of these rules and targets: that of a streaming task says
    whose.
    """
    return not isinstance(file.detail, Spent) or not names.isdisjoint(file.detail.outcomes)


def _some(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the first pieces, as many as a page has."""
    files: set[str] = set()
    rows = 0
    for count, piece in enumerate(pieces[:MOST_PIECES]):
        files.add(piece.file)
        rows += piece.count
        if count and (len(files) > MOST_FILES or rows > MOST_ROWS):
            return tuple(pieces[:count])
    return tuple(pieces[:MOST_PIECES])


def _deliveries(runtime: Runtime, pieces: Sequence[Piece]) -> _Deliveries:
    """Return the deliveries of pieces; each file is opened once."""
    by_file: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_file.setdefault(piece.file, []).append(piece)
    columns = ["delivery_id", "event_id"]
    tables = [pa.schema([schemas.DELIVERY.field(name) for name in columns]).empty_table()]
    lost: set[tuple[str, str]] = set()
    for file, those in by_file.items():
        numbers = np.concatenate([row_vectors.decode(piece.rows) for piece in those])
        try:
            tables.append(read_rows(runtime.store, file, row_vectors.encode(numbers), columns))
        except StoreError:  # past its retention
            lost |= {(piece.rule, piece.target) for piece in those}
    return _Deliveries(pa.concat_tables(tables), frozenset(lost))
