"""The status of the newest batches' chunks, and of failed chunks: exception and last failed response.

For people: `eventbridge status --chunks` and `--failures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from eventbridge.dead_letters.selection import QUOTING_REASONS
from eventbridge.delivery.segments import segments
from eventbridge.model.batch import Batch, BatchKind
from eventbridge.model.chunk import Chunk, ChunkState
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table

#: How many batches are searched for failures.
_BATCHES_SEARCHED = 500


@dataclass(frozen=True)
class ChunkStatus:
    """One chunk. `source`: the bus that its batch took its events from, or `pending`; `targets`: `rule/target`.

    `seconds` is how long its last push worked on it, None before it ended; `succeeded` and `failed` count the
    deliveries of that push; `error` is the exception that ended it. `last_failure` is the last failed response of a
    target; it is read only for failures.
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
    """Return the chunks of the newest `batches` batches, those of the newest first."""
    found = runtime.ledger.batches(limit=batches)
    return [_status(batch, chunk) for batch in found for chunk in runtime.ledger.chunks(batch.batch_id)]


def chunk_failures(runtime: Runtime, *, limit: int, payloads: bool = True) -> list[ChunkStatus]:
    """Return the newest chunks, at most `limit`, that ended in ERROR or TIMEOUT or have failed deliveries.

    `payloads` False: without text that may quote an event.
    """
    failures: list[ChunkStatus] = []
    for batch in runtime.ledger.batches(limit=_BATCHES_SEARCHED):
        for chunk in runtime.ledger.chunks(batch.batch_id):
            if len(failures) == limit:
                return failures
            if chunk.state in ("error", "timeout") or chunk.failed:
                failures.append(_status(batch, chunk, _last_failure(runtime, batch, chunk, payloads)))
    return failures


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
    """Yield the responses to the failed attempts of a chunk, the last first."""
    columns = ["rule", "target", "outcome", "reason", "code", "error_class", "error"]
    for file in reversed(segments(runtime, batch.batch_id, [chunk.chunk_id])):
        if file.path is not None:
            for row in reversed(read_table(runtime.store, file.path, columns=columns).to_pylist()):
                if row["outcome"] != "delivered":
                    said = row["error_class"] or (f"HTTP {row['code']}" if row["code"] else row["reason"])
                    error = row["error"] if payloads or row["reason"] not in QUOTING_REASONS else None
                    yield ": ".join(filter(None, [f"{row['rule']}/{row['target']}", said, error]))
