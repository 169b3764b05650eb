"""Returns the status of the newest chunks and of the failed ones, and one chunk page by page.

A page of a chunk has some of its pieces, and attempts at their deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.dead_letters.selection import QUOTING_REASONS
from eventbridge.delivery.segments import is_of_streaming_task, segments
from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch, BatchFile, BatchKind
from eventbridge.model.chunk import Chunk, ChunkState, Piece
from eventbridge.model.cursor import Cursor, read_cursor, read_number_cursors, write_cursor, write_name_cursor
from eventbridge.model.file_detail import Spent
from eventbridge.repair.audit import find_batch
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import schemas
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.views.batches import batch_cursor, planned_at

#: The maximum number of attempts on a page; failed attempts come first.
MAX_ATTEMPTS = 60

#: The maximum number of pieces on a page, and of delivery files that hold them.
MAX_PIECES, MAX_FILES = 60, 20

#: The maximum number of segments that a page reads.
MAX_SEGMENTS = 20

#: The maximum number of deliveries of a page's pieces, and of outcomes in its segments; the first piece and the first
#: segment are always read.
MAX_ROWS = 40_000
_COLUMNS = [
    "delivery_id", "rule", "target", "attempt", "started_at", "duration_ms", "outcome", "code", "error_class",
    "reason",
]  # fmt: skip

#: The maximum number of batches that are searched for failures, the newest first.
_BATCHES_SEARCHED = 500


@dataclass(frozen=True)
class ChunkAttempt:
    """One attempt; `event_id` is empty if the file of its delivery cannot be read."""

    event_id: str
    delivery_id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class ChunkAccount:
    """A page of a chunk: some of its pieces, and some of the attempts at their deliveries.

    `first` is how many pieces the previous pages have shown. If `continues`, this page has further attempts at the
    deliveries of the previous page's pieces. `cursor` is None if this is the last page.
    """

    batch: Batch
    chunk: Chunk
    pieces: tuple[Piece, ...]
    attempts: tuple[ChunkAttempt, ...]
    first: int
    continues: bool
    cursor: str | None
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class _Position:
    """The position at which a page of attempts begins: failed attempts of all segments come first, then delivered
    ones."""

    delivered: int = 0
    segment: int = 0
    row: int = 0


@dataclass(frozen=True)
class _Deliveries:
    """The deliveries of pieces, and the rules and targets of the pieces whose files cannot be read."""

    rows: pa.Table
    lost: frozenset[tuple[str, str]]

    def events(self, wanted: pa.ChunkedArray) -> dict[bytes, str]:
        """Return the event ids of the `wanted` deliveries."""
        found = self.rows.filter(pc.is_in(self.rows["delivery_id"], value_set=wanted))
        return dict(zip(found["delivery_id"].to_pylist(), found["event_id"].to_pylist(), strict=True))

    def attempts(self, rows: pa.Table) -> pa.Table:
        """Return the attempts at these deliveries, and those that may belong to a delivery that cannot be read."""
        fits = pc.is_in(rows["delivery_id"], value_set=self.rows["delivery_id"])
        for rule, target in self.lost:
            fits = pc.or_(fits, pc.and_(pc.equal(rows["rule"], rule), pc.equal(rows["target"], target)))
        return rows.filter(fits)


class _Segments:
    """Reads the attempts at the deliveries of a page's pieces, each segment once, up to the limits of a page."""

    def __init__(self, runtime: Runtime, files: Sequence[BatchFile], deliveries: _Deliveries, *, whole: bool) -> None:
        self._runtime = runtime
        self._files = files
        self._deliveries = deliveries
        self._whole = whole
        self._read: dict[int, pa.Table] = {}
        self.unreadable: list[str] = []

    def page(self, position: _Position) -> tuple[pa.Table, _Position | None]:
        """Return the attempts of the page at a position and the position of the next page, or None after the last
        page."""
        shown = [schemas.OUTCOME.empty_table().select([*_COLUMNS, "error"])]
        remaining = MAX_ATTEMPTS
        while position.delivered < 2:
            if position.segment >= len(self._files):
                position = _Position(position.delivered + 1)
                continue
            rows = self._rows(position.segment)
            if rows is None:
                return pa.concat_tables(shown), position
            fits = pc.equal(rows["outcome"], "delivered")
            rows = rows.filter(fits if position.delivered else pc.invert(fits))
            shown.append(rows.slice(position.row, remaining))
            remaining -= shown[-1].num_rows
            row = position.row + shown[-1].num_rows
            if row < rows.num_rows:
                return pa.concat_tables(shown), _Position(position.delivered, position.segment, row)
            position = _Position(position.delivered, position.segment + 1)
        return pa.concat_tables(shown), None

    def _rows(self, number: int) -> pa.Table | None:
        """Return the attempts that a segment has for the pieces; None if the page may not read another segment."""
        if number not in self._read:
            file = self._files[number]
            known = sum(self._files[each].rows for each in self._read)
            if self._read and (len(self._read) >= MAX_SEGMENTS or known + file.rows > MAX_ROWS):
                return None
            self._read[number] = self._attempts(file)
        return self._read[number]

    def _attempts(self, file: BatchFile) -> pa.Table:
        columns = [*_COLUMNS, "error"]
        try:
            assert file.path is not None, "a segment has a file"
            rows = read_table(self._runtime.store, file.path, columns)
        except StoreError as error:
            self.unreadable.append(str(error))
            return schemas.OUTCOME.empty_table().select(columns)
        return rows if self._whole and not is_of_streaming_task(file) else self._deliveries.attempts(rows)


def chunk_account(runtime: Runtime, batch: str, chunk_id: int, after: str | None = None) -> ChunkAccount:
    """Return the page of a chunk after a cursor; `batch` is the id of its batch, or the beginning of the id.

    Raises NotFoundError for an unknown batch or chunk, UserError for an invalid cursor.
    """
    first, *numbers = read_number_cursors(after, 4) if after else (0, 0, 0, 0)
    position = _Position(*numbers)
    found = runtime.ledger.batches.get(find_batch(runtime, batch))
    chunk = runtime.ledger.chunks.get(found.batch_id, chunk_id)
    pieces = _first_pieces(chunk.pieces[first:])
    names = {f"{piece.rule}/{piece.target}" for piece in pieces}
    files = [
        file
        for file in segments(runtime, found.batch_id, [chunk_id])
        if file.path is not None and _may_have_outcomes(file, names)
    ]
    deliveries = _deliveries(runtime, pieces)
    reader = _Segments(runtime, files, deliveries, whole=len(pieces) == len(chunk.pieces))
    shown, following = reader.page(position)
    events = deliveries.events(shown["delivery_id"])
    attempts = tuple(
        ChunkAttempt(events.get(row["delivery_id"], ""), delivery_id_text(row["delivery_id"]), row)
        for row in shown.to_pylist()
    )
    cursor = None
    if following is not None:
        cursor = _cursor(first, following)
    elif first + len(pieces) < len(chunk.pieces):
        cursor = _cursor(first + len(pieces), _Position())
    continues = position != _Position()
    return ChunkAccount(found, chunk, pieces, attempts, first, continues, cursor, tuple(reader.unreadable))


def chunk_of_push(runtime: Runtime, batch_id: str, map_index: int) -> int:
    """Return the chunk id of a mapped push in a batch's run; for an unknown map index, that of the first chunk."""
    chunks = runtime.ledger.chunks.list_for_batch(batch_id)
    return next((each.chunk_id for each in chunks if each.map_index == map_index), chunks[0].chunk_id if chunks else 0)


def _cursor(first: int, position: _Position) -> str:
    return write_name_cursor(*map(str, (first, position.delivered, position.segment, position.row)))


def _may_have_outcomes(file: BatchFile, names: set[str]) -> bool:
    """Return whether a segment may have outcomes of some of these `rule/target` names.

    A segment of a streaming task records its names; any other segment may have outcomes of every name.
    """
    return not isinstance(file.detail, Spent) or not names.isdisjoint(file.detail.outcomes)


def _first_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return as many pieces as fit on one page, at least the first."""
    files: set[str] = set()
    rows = 0
    for count, piece in enumerate(pieces[:MAX_PIECES]):
        files.add(piece.file)
        rows += piece.count
        if count and (len(files) > MAX_FILES or rows > MAX_ROWS):
            return tuple(pieces[:count])
    return tuple(pieces[:MAX_PIECES])


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
        except StoreError:  # perhaps past its retention
            lost |= {(piece.rule, piece.target) for piece in those}
    return _Deliveries(pa.concat_tables(tables), frozenset(lost))


@dataclass(frozen=True)
class ChunkStatus:
    """The status of one chunk.

    `source` is the bus that its batch took its events from, or `pending`; `targets` have the form `rule/target`.
    `seconds` is how long its last push worked on it, or None until that push has ended; `succeeded` and `failed` count
    the deliveries of this push; `error` is the exception that ended the push. `last_failure` describes the last failed
    attempt; only a list of failed chunks has it.
    """

    batch_id: str
    chunk_id: int
    kind: BatchKind
    source: str
    state: ChunkState
    handed_out: bool
    targets: tuple[str, ...]
    rows: int
    succeeded: int
    failed: int
    claim: int
    worker: str
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None
    error: str
    last_failure: str = ""


def chunk_statuses(runtime: Runtime, *, batches: int) -> list[ChunkStatus]:
    """Return the chunks of the newest `batches` batches, newest batch first."""
    found = runtime.ledger.batches.find(limit=batches)
    return [_status(batch, chunk) for batch in found for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)]


def chunk_failures(runtime: Runtime, *, limit: int) -> list[ChunkStatus]:
    """Return the newest chunks, at most `limit`, in the `error` or `timeout` state or with failed deliveries.

    Only the newest _BATCHES_SEARCHED batches are searched.
    """
    return list(chunk_page(runtime, limit, failures=True).chunks)


@dataclass(frozen=True)
class ChunkPage:
    """A page of chunks, newest batch first; `cursor` leads to the next page, and is None on the last page."""

    chunks: tuple[ChunkStatus, ...]
    cursor: str | None


def chunk_page(
    runtime: Runtime, limit: int, after: str | None = None, *, failures: bool = False, payloads: bool = True
) -> ChunkPage:
    """Return at most `limit` chunks after a cursor, or only failed chunks, each with its last failure.

    At most _BATCHES_SEARCHED batches are searched, so a page with a cursor may be short or empty. If `payloads` is
    False, `last_failure` has no text that may quote an event. Raises UserError for an invalid cursor.
    """
    start = read_cursor(after) if after else None
    found: list[ChunkStatus] = []
    last = start
    batches = _batches_from(runtime, start)
    for batch in batches[:_BATCHES_SEARCHED]:
        for chunk in _chunks_after(runtime, batch, start):
            if failures and not (chunk.state in ("error", "timeout") or chunk.failed):
                continue
            if len(found) == limit and last is not None:
                return ChunkPage(tuple(found), write_cursor(last))
            failure = _last_failure(runtime, batch, chunk, payloads) if failures else ""
            found.append(_status(batch, chunk, failure))
            last = batch_cursor(batch, chunk.chunk_id)
    if len(batches) > _BATCHES_SEARCHED:
        return ChunkPage(tuple(found), write_cursor(batch_cursor(batches[_BATCHES_SEARCHED], -1)))
    return ChunkPage(tuple(found), None)


def _batches_from(runtime: Runtime, start: Cursor | None) -> list[Batch]:
    """Return one more batch than a page searches, the newest first, beginning with the batch of a cursor."""
    if start is None:
        return runtime.ledger.batches.find(limit=_BATCHES_SEARCHED + 1)
    # `~` follows every character of an id, so the batch of the cursor, which may have further chunks, is included.
    just_before = (planned_at(start), f"{start.batch_id}~")
    return runtime.ledger.batches.find(limit=_BATCHES_SEARCHED + 1, before=just_before)


def _chunks_after(runtime: Runtime, batch: Batch, start: Cursor | None) -> list[Chunk]:
    """Return the chunks of a batch, without those that the previous page showed."""
    shown = start.row if start is not None and start.batch_id == batch.batch_id else -1
    return [each for each in runtime.ledger.chunks.list_for_batch(batch.batch_id) if each.chunk_id > shown]


def _status(batch: Batch, chunk: Chunk, last_failure: str = "") -> ChunkStatus:
    ended = chunk.started_at is not None and chunk.ended_at is not None
    return ChunkStatus(
        batch_id=batch.batch_id,
        chunk_id=chunk.chunk_id,
        kind=batch.kind,
        source=batch.bus or "pending",
        state=chunk.state,
        handed_out=chunk.handed_out,
        targets=tuple(dict.fromkeys(f"{piece.rule}/{piece.target}" for piece in chunk.pieces)),
        rows=chunk.rows,
        succeeded=chunk.succeeded,
        failed=chunk.failed,
        claim=chunk.claim,
        worker=chunk.worker,
        started_at=chunk.started_at,
        ended_at=chunk.ended_at,
        seconds=(chunk.ended_at - chunk.started_at).total_seconds() if ended else None,  # type: ignore[operator]
        error=chunk.error,
        last_failure=last_failure,
    )


def _last_failure(runtime: Runtime, batch: Batch, chunk: Chunk, payloads: bool) -> str:
    for text in _failures(runtime, batch, chunk, payloads):
        return text
    return ""


def _failures(runtime: Runtime, batch: Batch, chunk: Chunk, payloads: bool) -> Iterator[str]:
    """Yield a description of each failed attempt in a chunk, the last first."""
    columns = ["rule", "target", "outcome", "reason", "code", "error_class", "error"]
    for file in reversed(segments(runtime, batch.batch_id, [chunk.chunk_id])):
        if file.path is not None:
            for row in reversed(read_table(runtime.store, file.path, columns=columns).to_pylist()):
                if row["outcome"] != "delivered":
                    message = row["error_class"] or (f"HTTP {row['code']}" if row["code"] else row["reason"])
                    error = row["error"] if payloads or row["reason"] not in QUOTING_REASONS else None
                    yield ": ".join(filter(None, [f"{row['rule']}/{row['target']}", message, error]))
