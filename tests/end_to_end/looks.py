"""What tests look for in a running environment, until it is there."""

from __future__ import annotations

from end_to_end.running import Running

from eventbridge.event.ids import delivery_id_text
from eventbridge.model.chunk import Chunk
from eventbridge.stages.segments.segments import segments
from eventbridge.store.parquet import read_table


def delivering(running: Running, runner: str, rule: str | None = None) -> Chunk | None:
    """Return a chunk of the runner that is being pushed and has some answers written down; with `rule`, one of it."""
    batch = running.work.ledger.unfinished_batch(runner)
    for chunk in running.work.ledger.chunks(batch.batch_id) if batch is not None else []:
        of_rule = rule is None or any(piece.rule == rule for piece in chunk.pieces)
        if of_rule and chunk.state == "STARTED" and answered(running, chunk):
            return chunk
    return None


def answered(running: Running, chunk: Chunk, outcome: str | None = None) -> set[str]:
    """Return the webhook-ids of the chunk's deliveries whose answers, or those of one outcome, are written down."""
    files = [file.path for file in segments(running.work, chunk.batch_id, chunk.chunk_id) if file.path is not None]
    tables = (read_table(running.work.store, path, columns=["delivery_id", "outcome"]) for path in files)
    rows = [row for table in tables for row in table.to_pylist() if outcome in (None, row["outcome"])]
    return {delivery_id_text(row["delivery_id"]) for row in rows}


def takes(running: Running, path: str, count: int) -> bool:
    """Say whether the receiver took that many deliveries on a path."""
    return len(set(running.requests(path))) >= count


def run_state(running: Running, dag_id: str, run_id: str) -> str:
    """Return the state of a run."""
    return str(running.airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])
