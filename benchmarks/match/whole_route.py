"""Route from the buffer file to the delivery file, every match through a TEMPLATE: what `Remote` runs to measure it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.match.kernel import Pass

from eventbridge.rule import Bus, Rule, RuleSet, Target, Transform
from eventbridge.stages.route_slice import RouteJob, Slice, route_slice
from eventbridge.store import layout
from eventbridge.store.open import open_store
from eventbridge.store.parquet import write_table
from eventbridge.store.schemas import BUFFER

SLICE_ROWS: Final = 4_000
"""As many as route gives one task of a large batch."""

_PLANNED_AT: Final = datetime(2026, 11, 1, tzinfo=UTC)
_TRANSFORM: Final = Transform(
    form="TEMPLATE",
    value={"id": "$.id", "hub": "$.source", "weight": "$.data.weight", "shipper": "$.data.shipper"},
    template='{"key": "${id}", "text": "from ${hub}", "weight": ${weight}, "shipper": ${shipper}}',
)


class RouteSubject:
    """A store with buffer files, and rule sets by name."""

    def __init__(self, folder: Path) -> None:
        self._store = open_store(f"file://{folder}")
        self._rules: dict[str, RuleSet] = {}
        self._files: dict[str, tuple[str, int]] = {}

    def compile(self, name: str, rules: Path) -> None:
        """Make a rule set of the patterns of a file, one target a rule."""
        patterns = [json.loads(line) for line in rules.read_text(encoding="utf-8").splitlines()]
        made = (_rule(f"rule-{number:05d}", pattern) for number, pattern in enumerate(patterns))
        self._rules[name] = RuleSet(buses={"bench": Bus(name="bench")}, rules={rule.name: rule for rule in made})

    def events(self, name: str, file: Path, count: int) -> None:
        """Write the first events of a Parquet file as a buffer file."""
        bodies = pq.read_table(file, columns=["body"])["body"].combine_chunks()[:count]
        path = layout.buffer("bench", _PLANNED_AT, "bench", name)
        write_table(self._store, path, _buffer_table(bodies.to_pylist()))
        self._files[name] = (path, len(bodies))

    def measure(self, rules: str, events: str) -> Pass:
        """Route all slices of a buffer file; matches are the rows of the delivery files."""
        path, count = self._files[events]
        rule_set = self._rules[rules]
        job = _job(rule_set, self._store.uri)
        begun = time.process_time()
        rows = 0
        for first in range(0, count, SLICE_ROWS):
            piece = Slice(f"{events}-{first}", path, first, min(first + SLICE_ROWS, count))
            rows += route_slice(self._store, rule_set, job, piece).rows
        return Pass(count, time.process_time() - begun, rows)


def _rule(name: str, pattern: dict[str, Any]) -> Rule:
    target = Target(name="file", type="file", path="out.jsonl", transform=_TRANSFORM)
    return Rule(name=name, bus="bench", runner="bench", pattern=pattern, targets={"file": target})


def _job(rules: RuleSet, store_uri: str) -> RouteJob:
    return RouteJob(
        batch_id="bench",
        runner="bench",
        bus="bench",
        rule_set=rules.hash,
        planned_at=_PLANNED_AT,
        store_uri=store_uri,
        attempt="bench",
        event_max_bytes=2**20,
        piece_max_deliveries=5_000,
        piece_max_bytes=16 * 2**20,
    )


def _buffer_table(bodies: Sequence[str]) -> pa.Table:
    events = [json.loads(body) for body in bodies]
    count = len(events)
    columns = {
        "topic": ["bench"] * count,
        "broker": ["embedded"] * count,
        "queue_id": [0] * count,
        "offset": range(count),
        "message_id": [f"bench/{number}" for number in range(count)],
        "published_at": [_PLANNED_AT] * count,
        "arrived_at": [_PLANNED_AT] * count,
        "status": ["valid"] * count,
        "reason": [None] * count,
        "event_id": [event["id"] for event in events],
        "source": [event["source"] for event in events],
        "type": [event["type"] for event in events],
        "body": [body.encode() for body in bodies],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in BUFFER]
    return pa.Table.from_arrays(arrays, schema=BUFFER)
