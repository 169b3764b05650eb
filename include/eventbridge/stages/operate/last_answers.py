"""What a target answered last, as the pushes of the newest batches wrote it down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import segments
from eventbridge.store.parquet import read_table

#: The newest batches that are looked through, the files of them that are read, and the answers that are told at most.
MOST_BATCHES = 20
MOST_FILES = 5
MOST_ANSWERS = 20

_COLUMNS = ["delivery_id", "rule", "target", "attempt", "started_at", "duration_ms", "outcome", "code"]


@dataclass(frozen=True)
class LastAnswer:
    """One attempt; `said` is the error or, of a shadow or a delivery, "". `head` is how the answer begins."""

    delivery_id: str
    attempt: int
    started_at: datetime
    duration_ms: float
    outcome: str
    code: int | None
    said: str
    head: str


def last_answers(work: Runtime, rule: str, target: str) -> list[LastAnswer]:
    """Return the newest answers of a target of a rule, the last first; of what cannot be read none."""
    found: list[LastAnswer] = []
    read = 0
    for batch in work.ledger.batches(limit=MOST_BATCHES):
        for path in _files(work, batch, rule, target):
            if read == MOST_FILES or len(found) >= MOST_ANSWERS:
                break
            read += 1
            found += _answers(work, path, rule, target)
    return sorted(found, key=lambda each: each.started_at, reverse=True)[:MOST_ANSWERS]


def _files(work: Runtime, batch: Batch, rule: str, target: str) -> list[str]:
    """Return the files of a batch that may have answers of a target, the newest first."""
    chunks = work.ledger.chunks(batch.batch_id)
    own = {
        each.chunk_id for each in chunks if any(piece.rule == rule and piece.target == target for piece in each.pieces)
    }
    files = [file for chunk_id in sorted(own) for file in segments(work, batch.batch_id, chunk_id)]
    paths = dict.fromkeys(file.path for file in files if file.path is not None)
    return list(reversed(list(paths)))


def _answers(work: Runtime, path: str, rule: str, target: str) -> list[LastAnswer]:
    try:
        table = read_table(work.store, path, [*_COLUMNS, "error_class", "error", "response_head"])
    except StoreError:  # past its retention, or away: the page of its batch tells
        return []
    own = pc.and_(
        pc.and_(pc.equal(table["rule"], rule), pc.equal(table["target"], target)), pc.greater(table["attempt"], 0)
    )
    rows = table.filter(own)
    newest = pc.sort_indices(rows, [("started_at", "descending")]).slice(0, MOST_ANSWERS)
    return [_answer(row) for row in rows.take(pa.array(newest)).to_pylist()]


def _answer(row: dict[str, object]) -> LastAnswer:
    head, delivery = row["response_head"], row["delivery_id"]
    return LastAnswer(
        delivery_id=delivery_id_text(delivery) if isinstance(delivery, bytes) else "",
        said=": ".join(str(row[name]) for name in ("error_class", "error") if row[name]),
        head=head.decode("utf-8", "replace") if isinstance(head, bytes) else "",
        **{name: row[name] for name in ("attempt", "started_at", "duration_ms", "outcome", "code")},  # type: ignore[arg-type]
    )
