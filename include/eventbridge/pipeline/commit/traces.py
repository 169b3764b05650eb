"""Reads the traced deliveries of a committed batch from its files, and reports them to the telemetry."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from eventbridge.delivery.segments import segments
from eventbridge.errors import EventBridgeError
from eventbridge.event.trace_context import TRACEPARENT, is_traceparent
from eventbridge.model.batch import Batch
from eventbridge.pipeline.settle.settlement import batch_deliveries, settlements
from eventbridge.runtime.instrumented import report_ended
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import column_of
from eventbridge.store.parquet import read_table
from eventbridge.telemetry.protocol import AttemptMade, DeliverySettled

log = logging.getLogger(__name__)

#: The maximum number of deliveries to report per batch, because commit holds their rows in memory.
MAX_TRACED = 10_000

_COLUMNS = ["delivery_id", "rule", "target", "bus", "source", "event_id", "published_at", "arrived_at", "headers"]
_ATTEMPTS = ["delivery_id", "attempt", "started_at", "duration_ms", "outcome", "code", "error", "sent"]
_STATUSES = ["delivery_id", "status", "reason", "settled_at"]


def report_traces(runtime: Runtime, batch: Batch) -> None:
    """Report the traced deliveries of a committed batch.

    If a file cannot be read, the remaining deliveries are not reported, and a warning is logged.
    """
    try:
        _report_traces(runtime, batch)
    except EventBridgeError as error:
        log.warning("the traces of batch %s are incomplete: %s", batch.batch_id, error)


def _report_traces(runtime: Runtime, batch: Batch) -> None:
    traced = {row["delivery_id"]: row for row in islice(_traced(runtime, batch), MAX_TRACED)}
    if len(traced) == MAX_TRACED:
        log.warning("batch %s: only its first %d traced deliveries are reported", batch.batch_id, MAX_TRACED)
    if not traced:
        return
    attempts = _attempts(runtime, batch, set(traced))
    for row in _rows_of(runtime, batch, set(traced)):
        of = traced[row["delivery_id"]]
        settled = DeliverySettled(
            batch_id=batch.batch_id,
            traceparent=of.pop("traceparent"),
            settled_at=row["settled_at"],
            status=row["status"],
            reason=row["reason"],
            attempts=tuple(sorted(attempts[row["delivery_id"]], key=lambda each: each.number)),
            **of,
        )
        report_ended(runtime.telemetry.delivery_settled, settled)


def _traced(runtime: Runtime, batch: Batch) -> Iterator[dict[str, Any]]:
    traces = runtime.telemetry.traces
    for _, _, table in batch_deliveries(runtime, batch, _COLUMNS):
        traceparents = [_traceparent_in(text) for text in table["headers"].to_pylist()]
        ids = table["delivery_id"].to_pylist()
        chosen = [number for number, each in enumerate(ids) if traces(each, traceparents[number])]
        if chosen:
            for number, row in zip(
                chosen, table.take(column_of(np.array(chosen), pa.int64())).to_pylist(), strict=True
            ):
                row.pop("headers")
                yield row | {"traceparent": traceparents[number]}


def _traceparent_in(headers: str | None) -> str | None:
    if not headers or TRACEPARENT not in headers:
        return None
    found = json.loads(headers).get(TRACEPARENT)
    return found if is_traceparent(found) else None


def _rows_of(runtime: Runtime, batch: Batch, ids: set[bytes]) -> Iterator[dict[str, Any]]:
    for _, table in settlements(runtime, batch.batch_id, _STATUSES):
        yield from (row for row in table.to_pylist() if row["delivery_id"] in ids)


def _attempts(runtime: Runtime, batch: Batch, ids: set[bytes]) -> dict[bytes, list[AttemptMade]]:
    found: dict[bytes, list[AttemptMade]] = defaultdict(list)
    for file in segments(runtime, batch.batch_id):
        rows = read_table(runtime.store, file.path, columns=_ATTEMPTS).to_pylist() if file.path else ()
        for row in rows:
            if row["delivery_id"] in ids and row["sent"]:
                duration = timedelta(milliseconds=row["duration_ms"])
                made = AttemptMade(
                    row["attempt"], row["started_at"], duration, row["outcome"], row["code"], row["error"]
                )
                found[row["delivery_id"]].append(made)
    return found
