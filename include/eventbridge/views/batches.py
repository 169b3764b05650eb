"""Lists batches page by page, and describes one with its ranges, chunks, stage times and reconciliation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from eventbridge.model.batch import Batch, Range
from eventbridge.model.chunk import Chunk
from eventbridge.model.cursor import Cursor, read_cursor, write_cursor
from eventbridge.pipeline.commit.stats import stage_times
from eventbridge.repair.audit import Audit, audit, find_batch
from eventbridge.runtime.runtime import Runtime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class BatchPage:
    """A page of batches, newest first; `cursor` leads to the next page, and is None on the last page."""

    batches: tuple[Batch, ...]
    cursor: str | None


@dataclass(frozen=True)
class StageTime:
    """The time that a stage of a batch took.

    `prepare` ends when the batch is routed, `push` ends when its last push ends, and `settle` ends when it is
    committed.
    """

    stage: str
    began_at: datetime
    seconds: float


@dataclass(frozen=True)
class BatchAccount:
    """One batch, its parts and its reconciliation, which is recomputed from the store.

    Until the batch is committed, `stages` is empty and `reconciliation` is None.
    """

    batch: Batch
    ranges: tuple[Range, ...]
    chunks: tuple[Chunk, ...]
    stages: tuple[StageTime, ...]
    reconciliation: Audit | None


def batch_page(runtime: Runtime, limit: int, after: str | None = None) -> BatchPage:
    """Return at most `limit` batches after a cursor. Raises UserError for an invalid cursor."""
    start = read_cursor(after) if after else None
    before = None if start is None else (planned_at(start), start.batch_id)
    found = runtime.ledger.batches.find(limit=limit + 1, before=before)
    cursor = write_cursor(batch_cursor(found[limit - 1])) if len(found) > limit else None
    return BatchPage(tuple(found[:limit]), cursor)


def planned_at(cursor: Cursor) -> datetime:
    """Return when the batch of a cursor was planned."""
    return _EPOCH + cursor.planned_at * _MICROSECOND


def batch_cursor(batch: Batch, row: int = -1) -> Cursor:
    """Return the cursor of a batch or, with `row`, of a part of it."""
    return Cursor((batch.planned_at - _EPOCH) // _MICROSECOND, batch.batch_id, row=row)


def batch_account(runtime: Runtime, name: str) -> BatchAccount:
    """Return the batch whose id begins with `name`. Raises NotFoundError if there is none, or several."""
    batch = runtime.ledger.batches.get(find_batch(runtime, name))
    chunks = runtime.ledger.chunks.list_for_batch(batch.batch_id)
    times = {} if batch.committed_at is None else stage_times(runtime, batch, chunks, batch.committed_at)
    return BatchAccount(
        batch=batch,
        ranges=tuple(runtime.ledger.batches.ranges(batch.batch_id)),
        chunks=tuple(chunks),
        stages=tuple(
            StageTime(name.removeprefix("stage_"), begin, (end - begin).total_seconds())
            for name, (begin, end) in times.items()
        ),
        reconciliation=audit(runtime, batch.batch_id) if batch.state == "committed" else None,
    )
