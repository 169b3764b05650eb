"""Helpers for the tests of route: a landed batch, routed in this process, and its results."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table


def buffered(site: Any, **settings: Any) -> tuple[Runtime, str]:
    """Plan and land a batch of all published events."""
    runtime: Runtime = site.reopen(**settings)
    batch_id = listen(runtime, "orders") or ""
    buffer(runtime, batch_id)
    return runtime, batch_id


def routed(runtime: Runtime, batch_id: str, **options: Any) -> list[int]:
    """Route a batch in this process and return the chunks that are handed out."""
    return route(runtime, batch_id, InProcessRouter(runtime.store), **options)


def deliveries(runtime: Runtime, batch_id: str) -> list[dict[str, Any]]:
    """Return the rows of all recorded delivery files."""
    rows: list[dict[str, Any]] = []
    for file in runtime.ledger.files.list_for_batch(batch_id, "delivery"):
        if file.path is not None:
            rows += read_table(runtime.store, file.path).to_pylist()
    return rows


def wanted(rows: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    """Count delivery rows by rule, target and event."""
    return Counter((row["rule"], row["target"], row["event_id"]) for row in rows)
