"""Stage write_dead_letters, first half: settles a batch, giving each of its deliveries its one frozen verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from eventbridge import rowset
from eventbridge.delivery_window import first_opening, windows_of
from eventbridge.ledger.records import PUSH_LOST, Batch, BatchFile, Chunk, TargetStatus
from eventbridge.rule.window import DeliverBetween
from eventbridge.stages.letter_copies import held_instead, read_deliveries
from eventbridge.stages.ordered_parking import gives_nothing_up
from eventbridge.stages.outcomes import Shown, segments, shown
from eventbridge.stages.workplace import Workplace
from eventbridge.store import layout, schemas
from eventbridge.store.parquet import read_table, write_table

#: Verdict of a chunk or a delivery that nobody tried: due at once, in the slow lane.
_SLOW = "slow"

#: How long what a push could not even begin is left alone: a connection that nobody defined would fail again at once.
_PAUSE = timedelta(seconds=30)

#: What `verdict_row` needs of a delivery row.
MATCHED_COLUMNS = ["delivery_id", "rule", "target", "failure", "published_at", "arrived_at", "not_before"]


def settle(work: Workplace, batch: Batch) -> Batch:
    """Freeze the verdicts of a routed batch and return it in state `settling`; later calls change nothing.

    Raises every claim first, so that no segment can be recorded once the verdicts are being read.
    Of two that settle at once the first to create the file wins; the other one's verdicts are thrown away.
    """
    if batch.state == "routed":
        work.ledger.begin_settlement(batch.batch_id)
        batch = work.ledger.batch(batch.batch_id)
    if batch.state == "settling" and not work.ledger.files(batch.batch_id, "settlement"):
        publish_settlement(work, batch, 0, list(verdicts_of(work, batch)), settlement_key(0))
    return batch


def settlement_key(number: int) -> str:
    """Return under which key settlement `number` of a batch is recorded."""
    return f"{number:06d}"


def first_settlement(work: Workplace, batch: Batch) -> str:
    """Return the key of a batch's first settlement; "" if it has none.

    To be read before anything that follows from a settlement, and given to the ledger with it: a batch that is settled
    anew has another one.
    """
    return next((file.key for file in work.ledger.files(batch.batch_id, "settlement")), "")


def publish_settlement(work: Workplace, batch: Batch, number: int, rows: list[dict[str, Any]], first: str) -> None:
    """Create settlement `number` (0, or a supplement of `first`) unless it exists, and record the one that does."""
    path = layout.settlement(batch.planned_at, batch.batch_id, number)
    table = pa.Table.from_pylist(rows, schema=schemas.SETTLEMENT)
    if not write_table(work.store, path, table, create=True):
        table = read_table(work.store, path, columns=["verdict"])
    work.ledger.record_file(
        BatchFile(batch.batch_id, "settlement", settlement_key(number), path, table.num_rows), "settling", first
    )


def settlement_rows(work: Workplace, batch_id: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the verdicts of a batch, those of supplements last."""
    for _, rows in settlements(work, batch_id, columns):
        yield from rows


def settlements(
    work: Workplace, batch_id: str, columns: list[str] | None = None
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield (number, rows) of the settlement (0) and its supplements (1, 2, ...)."""
    for file in work.ledger.files(batch_id, "settlement"):
        if file.path is not None:
            yield int(file.key), read_table(work.store, file.path, columns=columns).to_pylist()


def batch_deliveries(work: Workplace, batch: Batch, columns: list[str]) -> Iterator[tuple[str, list[int], pa.Table]]:
    """Yield (file, row numbers, rows) of everything the batch has to account for.

    A batch that was routed accounts for all rows of its delivery files,
    one that took up parked deliveries for the rows its chunks name.
    """
    if not batch.routes:
        for chunk in work.ledger.chunks(batch.batch_id):
            for piece in chunk.pieces:
                table = read_deliveries(work.store, piece.file, piece.rows, columns)
                yield piece.file, list(rowset.decode(piece.rows)), table
        return
    for file in work.ledger.files(batch.batch_id, "delivery"):
        if file.path is not None:
            table = read_table(work.store, file.path, columns=columns)
            yield file.path, list(range(table.num_rows)), table


def verdicts_of(work: Workplace, batch: Batch, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the verdict of each delivery of a batch as its segments show them, but for those of the keys `without`."""
    best = shown(work, (file for file in segments(work, batch.batch_id) if file.key not in without))
    places = Places(work.ledger.chunks(batch.batch_id))
    statuses = work.ledger.target_statuses()
    now = work.clock()
    reasons = failure_reasons(work, batch)
    rules = work.rules_of(batch)
    windows = windows_of(rules)
    for file, numbers, table in batch_deliveries(work, batch, MATCHED_COLUMNS):
        for number, row in zip(numbers, table.to_pylist(), strict=True):
            if row["failure"] is not None and row["delivery_id"] not in best:
                kept = now if gives_nothing_up(rules, row["rule"], row["target"]) else None
                yield failed_row(row, file, number, reasons.get((file, number)), kept, *places.of(file, number))
                continue
            chunk, attempts = places.of(file, number)
            status = statuses.get((row["rule"], row["target"]))
            window = windows.get((row["rule"], row["target"]))
            best_of = best.get(row["delivery_id"])
            yield held_instead(verdict_row(row, file, number, chunk, attempts, best_of, status, now, window), now)


def failure_reasons(work: Workplace, batch: Batch) -> dict[tuple[str, int], str]:
    """Return why the failed rows of delivery files failed, by path and row; one that is absent: TransformFailed."""
    return {
        (file.path, row): reason
        for file in work.ledger.files(batch.batch_id, "delivery")
        for reason, rows in file.detail.get("failure_reasons", {}).items()
        for row in rowset.decode(rows)
        if file.path is not None
    }


class Places:
    """Finds the chunk, and the attempts made before it, of a row of a delivery file."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._by_file: dict[str, dict[int, tuple[Chunk, int]]] = {}
        for chunk in chunks:
            for piece in chunk.pieces:
                rows = self._by_file.setdefault(piece.file, {})
                for number in rowset.decode(piece.rows):
                    rows[number] = (chunk, piece.attempts)

    def of(self, file: str, row: int) -> tuple[Chunk | None, int]:
        """Return (None, 0) for a row that is in no chunk."""
        return self._by_file.get(file, {}).get(row, (None, 0))


def failed_row(
    row: dict[str, Any],
    file: str,
    number: int,
    reason: str | None,
    kept: datetime | None = None,
    chunk: Chunk | None = None,
    attempts: int = 0,
) -> dict[str, Any]:
    """Return the row of schema SETTLEMENT for a delivery without payload; `reason` None: its transform failed.

    It is a dead letter, or, `kept` since then, waits, where a target gives nothing up.
    """
    said = {"reason": reason or "TransformFailed", "detail": row["failure"]}
    result = _settlement_row(row, file, number, chunk.chunk_id if chunk is not None else -1, attempts) | said
    if kept is None:
        return result | {"verdict": "DeadLettered"}
    return result | {"verdict": "RetryAt", "lane": _SLOW, "due_at": kept}


def verdict_row(
    row: dict[str, Any],
    file: str,
    number: int,
    chunk: Chunk | None,
    attempts: int,
    best: Shown | None,
    status: TargetStatus | None,
    now: datetime,
    window: DeliverBetween | None,
) -> dict[str, Any]:
    """Return the row of schema SETTLEMENT for one delivery.

    A delivery without any outcome is Unknown and due now, or soon if its push failed by an error: trying again is
    safe, forgetting it is not. None is due before it may be sent, nor while its target's window is closed.
    """
    result = _settlement_row(row, file, number, chunk.chunk_id if chunk is not None else -1, attempts)
    if best is None:
        best = Shown("Unknown", attempts, None, None, None, None)
    result |= {
        "verdict": best.verdict,
        "attempts": best.attempts,
        "reason": best.reason,
        "detail": best.detail,
        "settled_at": best.answered_at,
    }
    if best.verdict in ("RetryAt", "Unknown"):
        due_at = first_opening(window, best.due_at or _untried_due_at(chunk, now), row["not_before"])
        result |= {"lane": _SLOW, "due_at": due_at, "held": _held(chunk, status)}
    return result


def _untried_due_at(chunk: Chunk | None, now: datetime) -> datetime:
    failed = chunk is not None and chunk.state == "ERROR" and chunk.error != PUSH_LOST
    return now + _PAUSE if failed else now


def _settlement_row(row: dict[str, Any], file: str, number: int, chunk_id: int, attempts: int) -> dict[str, Any]:
    return {
        "delivery_id": row["delivery_id"],
        "rule": row["rule"],
        "target": row["target"],
        "chunk_id": chunk_id,
        "file": file,
        "row": number,
        "attempts": attempts,
        "published_at": row["published_at"],
        "arrived_at": row["arrived_at"],
        "not_before": row["not_before"],
    }


def _held(chunk: Chunk | None, status: TargetStatus | None) -> str | None:
    if status is not None and status.state == "disabled":
        return "target disabled"
    if chunk is not None and chunk.held:
        return chunk.held
    return None
