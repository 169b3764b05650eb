"""Outcome segments: what push tasks wrote of their attempts, and how several rows of one delivery become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from eventbridge.delivery import VERDICT_RANK, VerdictName
from eventbridge.ledger.records import Batch, BatchFile
from eventbridge.stages.workplace import Workplace
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table

_RANK = {name: rank for rank, name in enumerate(VERDICT_RANK)}

#: What a verdict needs of an outcome row; the answer's text is only read for dead letters.
_VERDICT_COLUMNS = [
    "delivery_id",
    "attempt",
    "sent",
    "started_at",
    "duration_ms",
    "outcome",
    "due_at",
    "reason",
    "error_class",
    "error",
    "code",
]


#: Segments are read as a whole: one group of rows each costs half of what four do.
_GROUP_ROWS = 20_000


@dataclass(frozen=True)
class Shown:
    """What the segments show of one delivery: its best outcome and the highest attempt number seen."""

    verdict: VerdictName
    attempts: int
    due_at: datetime | None
    reason: str | None
    detail: str | None
    answered_at: datetime | None


def segment_key(chunk_id: int, claim: int, number: int) -> str:
    """Return the ledger's key of a segment; keys of a batch sort by chunk, claim and number."""
    return f"{chunk_id:06d}-{claim:06d}-{number:06d}"


def write_segment(work: Workplace, batch: Batch, chunk_id: int, claim: int, number: int, rows: pa.Table) -> bool:
    """Make rows of schema OUTCOME durable and record them under a claim; False = it is stale, they count for nothing.

    The file comes first, its record second: a segment counts if and only if the ledger names it.
    """
    path = layout.outcomes(batch.planned_at, batch.batch_id, chunk_id, claim, number)
    write_table(work.store, path, rows, row_group_rows=_GROUP_ROWS)
    file = BatchFile(batch.batch_id, "outcome", segment_key(chunk_id, claim, number), path, rows.num_rows)
    return work.ledger.record_segment(file, chunk_id, claim)


def segments(work: Workplace, batch_id: str, chunk_id: int | None = None) -> list[BatchFile]:
    """Return the recorded segments of a batch, or of one of its chunks, in the order they were written."""
    files = work.ledger.files(batch_id, "outcome")
    if chunk_id is None:
        return files
    prefix = f"{chunk_id:06d}-"
    return [file for file in files if file.key.startswith(prefix)]


def shown(work: Workplace, files: Iterable[BatchFile]) -> dict[bytes, Shown]:
    """Return what segments show, per delivery id: the best outcome by rank, among equals the latest attempt."""
    best: dict[bytes, Shown] = {}
    for file in files:
        if file.path is None:
            continue
        table = read_table(work.store, file.path, columns=_VERDICT_COLUMNS)
        for row in table.to_pylist():
            merge(best, row["delivery_id"], _shown(row))
    return best


def merge(best: dict[bytes, Shown], delivery_id: bytes, other: Shown) -> None:
    """Take another row of a delivery into account; the order in which rows come does not matter."""
    known = best.get(delivery_id)
    if known is None:
        best[delivery_id] = other
        return
    winner, loser = (known, other) if _order(known) <= _order(other) else (other, known)
    attempts = max(winner.attempts, loser.attempts)
    best[delivery_id] = winner if attempts == winner.attempts else _with_attempts(winner, attempts)


def _order(row: Shown) -> tuple[int, int, str]:
    return (_RANK[row.verdict], -row.attempts, row.reason or "")


def _with_attempts(row: Shown, attempts: int) -> Shown:
    return Shown(row.verdict, attempts, row.due_at, row.reason, row.detail, row.answered_at)


def _shown(row: dict[str, Any]) -> Shown:
    answered = row["started_at"] + timedelta(milliseconds=row["duration_ms"]) if row["sent"] else None
    code = f"HTTP {row['code']}" if row["code"] else ""
    parts = [row["error_class"], code if code not in (row["error"] or "") else None, row["error"]]
    detail = ": ".join(part for part in parts if part) or None
    return Shown(row["outcome"], row["attempt"], row["due_at"], row["reason"], detail, answered)
