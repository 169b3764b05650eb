"""Conditions of a running environment, for which tests wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import sqlalchemy as sql
from end_to_end.running import RunningEnvironment

from eventbridge.delivery.segments import segments
from eventbridge.event.ids import delivery_id_text
from eventbridge.ledger.batches import batch
from eventbridge.model.chunk import Chunk
from eventbridge.store import layout
from eventbridge.store.parquet import read_table


def delivering(running: RunningEnvironment, runner: str, rule: str | None = None) -> Chunk | None:
    """Return a chunk of the runner that is being pushed and has recorded responses; with `rule`, one of this rule."""
    unfinished = running.runtime.ledger.batches.unfinished(runner)
    for chunk in running.runtime.ledger.chunks.list_for_batch(unfinished.batch_id) if unfinished is not None else []:
        of_rule = rule is None or any(piece.rule == rule for piece in chunk.pieces)
        if of_rule and chunk.state == "started" and responded(running, chunk):
            return chunk
    return None


def responded(running: RunningEnvironment, chunk: Chunk, outcome: str | None = None) -> set[str]:
    """Return the webhook-ids of the chunk's deliveries with recorded responses, or with those of one outcome."""
    files = [file.path for file in segments(running.runtime, chunk.batch_id, [chunk.chunk_id]) if file.path is not None]
    tables = (read_table(running.runtime.store, path, columns=["delivery_id", "outcome"]) for path in files)
    rows = [row for table in tables for row in table.to_pylist() if outcome in (None, row["outcome"])]
    return {delivery_id_text(row["delivery_id"]) for row in rows}


def takes(running: RunningEnvironment, path: str, count: int) -> bool:
    """Return whether the receiver accepted this number of deliveries on a path."""
    return len(set(running.requests(path))) >= count


def run_state(running: RunningEnvironment, dag_id: str, run_id: str) -> str:
    """Return the state of a run."""
    return str(running.airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])


@contextmanager
def earlier(running: RunningEnvironment, hours: int) -> Iterator[tuple[datetime, datetime]]:
    """Move the planning times of the archive's batches some hours back, for tests of past hours; yields their hours."""
    moved = sql.update(batch).where(batch.c.kind == "normal")
    ago = timedelta(hours=hours)
    engine, store = sql.create_engine(running.runtime.settings.ledger_url), running.runtime.store
    with engine.begin() as connection:
        names = connection.execute(
            sql.select(batch.c.batch_id, batch.c.planned_at).where(batch.c.kind == "normal")
        ).all()
        for name, planned_at in names:
            connection.execute(moved.where(batch.c.batch_id == name).values(planned_at=planned_at - ago))
    times = [planned_at.replace(minute=0, second=0, microsecond=0) - ago for _, planned_at in names]
    manifests = [(layout.manifest(at, name), layout.manifest(at - ago, name)) for name, at in names]
    copies = [copy for manifest, copy in manifests if copy != manifest and store.exists(manifest)]  # of the day before
    try:
        for manifest, copy in manifests:
            if copy in copies:
                store.put(copy, store.get(manifest))
        yield min(times), max(times)
    finally:
        store.delete_all(copies)
        with engine.begin() as connection:
            for name, planned_at in names:
                connection.execute(moved.where(batch.c.batch_id == name).values(planned_at=planned_at))
        engine.dispose()
