"""Measures the CPU time of routing an event in one process: reading, matching, rendering and writing Parquet.

`python -m benchmarks.bench_route EVENTS RULES` prints one table; other benchmarks use `measure` to compare matchers.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from eventbridge.event.cloudevent import parse_event
from eventbridge.model.file_detail import RoutedSlice
from eventbridge.routing.job import RouteJob, Slice
from eventbridge.routing.slice import route_slice
from eventbridge.rules import RuleSet
from eventbridge.store import layout
from eventbridge.store.file import FileStore
from eventbridge.store.parquet import write_table
from eventbridge.store.schemas import BUFFER, ROW_GROUP_ROWS

#: A template as rule files have them: three parts of the event, one default, what is predefined.
TEMPLATE: dict[str, Any] = {
    "form": "TEMPLATE",
    "value": {"id": "$.data.customer.id", "amount": "$.data.amount", "code": "$.data.error.code"},
    "template": '{"rule": "${eb.rule}", "customer": "${id}", "amount": ${amount}, "code": "${code:-none}"}',
}
EVERYTHING: dict[str, Any] = {}

_NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Measured:
    """CPU seconds of routing so many events into so many deliveries, of `size` bytes on disk."""

    events: int
    deliveries: int
    seconds: float
    size: int
    handed_back: int


def rule_set_of(patterns: Sequence[dict[str, Any]], transform: dict[str, Any] | None = None) -> RuleSet:
    """Return a rule set with one rule and one file target per pattern."""
    target = {"name": "log", "type": "file", "path": "log.jsonl", "transform": transform or TEMPLATE}
    rules = {
        f"rule-{number:05d}": {
            "name": f"rule-{number:05d}",
            "bus": "orders",
            "runner": "orders",
            "pattern": pattern,
            "targets": {"log": target},
        }
        for number, pattern in enumerate(patterns)
    }
    return RuleSet.model_validate({"buses": {"orders": {"name": "orders"}}, "rules": rules})


def land(store: FileStore, events_file: Path, count: int) -> tuple[str, int]:
    """Write the first events of a file, one a line, as a buffer file; return its path and the number of rows."""
    with events_file.open("rb") as lines:
        bodies = [line.rstrip(b"\r\n") for line in itertools.islice(lines, count)]
    rows = [_row(offset, body) for offset, body in enumerate(bodies)]
    path = layout.buffer("orders", _NOW, "batch", "one")
    write_table(store, path, pa.Table.from_pylist(rows, schema=BUFFER), row_group_rows=ROW_GROUP_ROWS)
    return path, len(rows)


def measure(
    events_file: Path, rules: RuleSet, *, events: int = 20_000, slice_rows: int = 2 * ROW_GROUP_ROWS, repeat: int = 5
) -> Measured:
    """Return the best of `repeat` runs over all slices; compiling rules and code is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(Path(folder))
        path, rows = land(store, events_file, events)
        slices = [
            Slice(f"s/{first}", path, first, min(first + slice_rows, rows)) for first in range(0, rows, slice_rows)
        ]
        job = RouteJob(
            batch_id="batch",
            runner="orders",
            bus="orders",
            rule_set=rules.hash,
            planned_at=_NOW,
            store_uri=store.uri,
            attempt="attempt",
            event_max_size=1 << 20,
            piece_max_deliveries=5_000,
            piece_max_bytes=8 << 20,
        )
        route_slice(store, rules, job, slices[0])
        return min((_run(store, rules, job, slices, rows) for _ in range(repeat)), key=lambda each: each.seconds)


def _run(store: FileStore, rules: RuleSet, job: RouteJob, slices: Sequence[Slice], rows: int) -> Measured:
    started = time.process_time()
    results = [route_slice(store, rules, job, each) for each in slices]
    seconds = time.process_time() - started
    paths = [store.root / each.path for each in results if each.path]
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.unlink()
    details = [each.detail for each in results if isinstance(each.detail, RoutedSlice)]
    handed_back = sum(each.reference_matched + each.reference_rendered for each in details)
    return Measured(rows, sum(each.rows for each in results), seconds, size, handed_back)


def _row(offset: int, body: bytes) -> dict[str, Any]:
    event = parse_event(body, max_bytes=1 << 20)
    return {
        "topic": "events",
        "broker": "",
        "partition_id": 0,
        "offset": offset,
        "message_id": str(offset),
        "published_at": _NOW,
        "arrived_at": _NOW,
        "status": "valid",
        "event_id": event.id,
        "source": event.source,
        "type": event.type,
        "body": body,
    }


def _print(name: str, found: Measured) -> None:
    per_delivery = found.seconds / found.deliveries * 1e6 if found.deliveries else 0.0
    print(  # noqa: T201
        f"{name:34s} {found.events / found.seconds / 1e3:8.0f}k {found.deliveries / found.events:10.2f}"
        f" {found.deliveries / found.seconds / 1e3:9.0f}k {per_delivery:8.2f} {found.handed_back:8d}"
    )


def main(events_file: Path, rules_file: Path) -> None:
    """Print what routing costs where few events match and where all do."""
    patterns = json.loads(rules_file.read_text())
    print(f"{'rules':34s} {'events/s':>9s} {'matches':>10s} {'deliv./s':>10s} {'us each':>8s} {'by hand':>8s}")  # noqa: T201
    for count in (1, 10, 100, 1000):
        _print(f"{count} mixed, TEMPLATE", measure(events_file, rule_set_of(patterns[:count])))
    for name, transform in (("TEMPLATE", TEMPLATE), ("ORIGINAL", {"form": "ORIGINAL"})):
        for count in (1, 10):
            rules = rule_set_of([EVERYTHING] * count, transform)
            _print(f"{count} that match everything, {name}", measure(events_file, rules))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
