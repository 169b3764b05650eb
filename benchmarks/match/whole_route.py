"""Route from the buffer file to the delivery file, every match through a TEMPLATE, run by `Remote`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.match.kernel import Pass

from eventbridge.model.batch import BatchFile
from eventbridge.pipeline.route.stage import slices_of
from eventbridge.routing.job import JobTasks, RouteJob, Slice
from eventbridge.routing.slice import route_slice
from eventbridge.rules import Bus, Rule, RuleSet, Transform
from eventbridge.store import layout
from eventbridge.store.open import open_store
from eventbridge.store.parquet import write_table
from eventbridge.store.rule_sets import freeze_rules
from eventbridge.store.schemas import BUFFER, ROW_GROUP_ROWS
from eventbridge.targets.file.fields import FileFields

_PLANNED_AT: Final = datetime(2026, 11, 1, tzinfo=UTC)
_TRANSFORM: Final = Transform(
    form="TEMPLATE",
    value={"id": "$.id", "hub": "$.source", "weight": "$.data.weight", "shipper": "$.data.shipper"},
    template='{"key": "${id}", "text": "from ${hub}", "weight": ${weight}, "shipper": ${shipper}}',
)
_ATTRIBUTES: Final = r'"id":"(?P<event_id>[^"]*)","source":"(?P<source>[^"]*)","type":"(?P<type>[^"]*)"'


class RouteSubject:
    """A store with buffer files and frozen rule sets by name."""

    def __init__(self, folder: Path) -> None:
        self._store = open_store(f"file://{folder}")
        self._rules: dict[str, RuleSet] = {}
        self._hashes: dict[str, str] = {}
        self._files: dict[str, str] = {}

    def compile(self, name: str, rules: Path) -> tuple[str, str]:
        """Freeze a rule set of the patterns of a file, one target a rule; return the store's URI and its hash."""
        patterns = [json.loads(line) for line in rules.read_text(encoding="utf-8").splitlines()]
        made = (rule_of(f"rule-{number:05d}", pattern) for number, pattern in enumerate(patterns))
        self._rules[name] = RuleSet(buses={"bench": Bus(name="bench")}, rules={rule.name: rule for rule in made})
        self._hashes[name] = freeze_rules(self._store, self._rules[name])
        return self._store.uri, self._hashes[name]

    def events(self, name: str, file: Path, count: int) -> None:
        """Write the first events of a Parquet file as a buffer file."""
        bodies = pq.read_table(file, columns=["body"])["body"].combine_chunks()[:count]
        path = layout.buffer("bench", _PLANNED_AT, "bench", name)
        write_table(self._store, path, buffer_table(bodies), row_group_rows=ROW_GROUP_ROWS)
        self._files[name] = path

    def measure(self, rules: str, events: str, count: int) -> Pass:
        """Route the first events of a buffer file, slice by slice; matches are the rows of the delivery files."""
        rule_set, job, slices = self._rules[rules], self._job(rules), self._slices(events, count)
        begun = time.process_time()
        rows = sum(route_slice(self._store, rule_set, job, piece).rows for piece in slices)
        return Pass(count, time.process_time() - begun, rows)

    def asked(self, rules: str, events: str, count: int) -> str:
        """Return the job and the slices of what `measure` routes, as JSON, for other processes."""
        return JobTasks(self._job(rules), tuple(self._slices(events, count))).to_json().decode()

    def _slices(self, events: str, count: int) -> list[Slice]:
        return slices_of([BatchFile("bench", "buffer", events, self._files[events], count)])

    def _job(self, rules: str) -> RouteJob:
        return RouteJob(
            batch_id="bench",
            runner="bench",
            bus="bench",
            rule_set=self._hashes[rules],
            planned_at=_PLANNED_AT,
            store_uri=self._store.uri,
            attempt="bench",
            event_max_size=2**20,
            piece_max_deliveries=5_000,
            piece_max_bytes=16 * 2**20,
        )


def rule_of(name: str, pattern: dict[str, Any]) -> Rule:
    """Return a rule of this pattern, with one target that gets what a TEMPLATE makes of each event."""
    target = FileFields(name="file", path="out.jsonl", transform=_TRANSFORM)
    return Rule(name=name, bus="bench", runner="bench", pattern=pattern, targets={"file": target})


def buffer_table(bodies: pa.Array, first: int = 0, at: datetime = _PLANNED_AT) -> pa.Table:
    """Return events as valid rows of schema BUFFER, from an offset on."""
    count = len(bodies)
    attributes = pc.extract_regex(bodies, _ATTRIBUTES)
    same: dict[str, list[Any]] = {
        "topic": ["bench"],
        "broker": ["embedded"],
        "partition_id": [0],
        "published_at": [at],
        "arrived_at": [at],
        "status": ["valid"],
        "reason": [None],
    }
    columns: dict[str, Any] = {name: value * count for name, value in same.items()}
    columns |= {name: pc.struct_field(attributes, name) for name in ("event_id", "source", "type")}
    offsets = range(first, first + count)
    columns |= {"offset": offsets, "message_id": [f"bench/{number}" for number in offsets], "body": bodies}
    arrays = [
        columns[field.name].cast(field.type)
        if isinstance(columns[field.name], pa.Array)
        else pa.array(columns[field.name], field.type)
        for field in BUFFER
    ]
    return pa.Table.from_arrays(arrays, schema=BUFFER)
