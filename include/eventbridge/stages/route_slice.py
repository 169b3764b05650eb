"""Route one slice of a buffer file: what a worker of route does, in this process or on Spark.

Nothing here may import the ledger or Spark: a Spark worker imports this module and should be ready soon.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge import rowset
from eventbridge.errors import TransformFailed
from eventbridge.event import Event, parse_event
from eventbridge.identity import Fingerprint, delivery_id, delivery_id_text
from eventbridge.match.reference import flatten, matches_leaves
from eventbridge.pattern import Pattern, parse_pattern
from eventbridge.rule import Rule, RuleSet, Target
from eventbridge.stages.route_job import RouteJob, Slice, SliceResult
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import DELIVERY
from eventbridge.transform import Renderer, Scope, compile_transform


def route_slice(store: Store, rule_set: RuleSet, job: RouteJob, piece: Slice) -> SliceResult:
    """Match and transform the valid events of a slice and write one delivery file; safe to run any number of times.

    Every call writes under a name of its own, so one that is repeated or runs twice leaves garbage, never a duplicate.
    A transform that fails leaves a row with its `failure` and no payload. Of costly rules only the survivors of their
    patterns are noted. Raises StoreError; EventError cannot happen,
    as buffer parsed the same bytes.
    """
    events = _Events.read(store, piece, job.event_max_bytes)
    program = _program(job.rule_set, rule_set)
    matched = _match(program.patterns, events)
    survivors = {name: rowset.encode(events.rows[index] for index in matched[name]) for name in program.costly}
    deliveries = _Deliveries(job, events)
    for route in program.routes:
        if matched[route.rule.name]:
            deliveries.add(route, matched[route.rule.name])
    path = None
    if deliveries.ids:
        # Sorted by name, as chunks are cut, the files of a batch follow the order of queue and offset.
        part = re.sub(r"[^\w.-]", "_", piece.slice_id, flags=re.ASCII) + f"-{uuid.uuid4().hex}"
        path = layout.deliveries(job.planned_at, job.batch_id, job.attempt, part)
        write_table(store, path, deliveries.table(piece))
    detail = deliveries.detail(piece) | ({"survivors": survivors} if any(survivors.values()) else {})
    return SliceResult(piece.slice_id, path, len(deliveries.ids), detail)


@dataclass(frozen=True)
class _Route:
    """One target of one rule, ready to render."""

    rule: Rule
    target: Target
    renderer: Renderer


@dataclass(frozen=True)
class _Program:
    """A rule set made ready: the patterns of all enabled rules, and the targets of those that are not costly."""

    patterns: Mapping[str, Pattern]
    routes: tuple[_Route, ...]
    costly: tuple[str, ...]


_programs: dict[str, _Program] = {}


def _program(rule_set_hash: str, rule_set: RuleSet) -> _Program:
    """Return the rules' program, its targets in the order of a delivery file; compiled once per process."""
    if rule_set_hash not in _programs:
        if len(_programs) >= 8:  # a worker lives long, and every change of a rule makes another set
            _programs.clear()
        rules = rule_set.enabled()
        routes = [
            _Route(rule, target, compile_transform(target.transform, content_mode=target.content_mode))
            for rule in rules.values()
            for target in rule.targets.values()
            if not rule.costly
        ]
        routes.sort(key=lambda route: (route.rule.pool_name, route.rule.name, route.target.name))
        patterns = {name: parse_pattern(rule.pattern) for name, rule in rules.items()}
        costly = tuple(name for name, rule in rules.items() if rule.costly)
        _programs[rule_set_hash] = _Program(patterns, tuple(routes), costly)
    return _programs[rule_set_hash]


@dataclass(frozen=True)
class _Events:
    """The valid events of a slice, as rows and parsed; `rows` are their row numbers in the buffer file."""

    table: pa.Table
    rows: list[int]
    parsed: list[Event]

    @classmethod
    def read(cls, store: Store, piece: Slice, max_bytes: int) -> _Events:
        rows = rowset.encode(range(piece.row_from, piece.row_to))
        table = read_rows(store, piece.file, rows)
        valid = pc.equal(table["status"], "valid")
        numbers = pa.array(range(piece.row_from, piece.row_to)).filter(valid.combine_chunks()).to_pylist()
        table = table.filter(valid)
        parsed = [parse_event(body, max_bytes=max_bytes) for body in table["body"].to_pylist()]
        return cls(table, numbers, parsed)

    @cached_property
    def arrived_at(self) -> list[datetime]:
        return list(self.table["arrived_at"].to_pylist())


def _match(patterns: Mapping[str, Pattern], events: _Events) -> Mapping[str, list[int]]:
    """Return, per rule, the indexes of the events it matches, ascending: bus order, as a file holds one queue."""
    matched: dict[str, list[int]] = defaultdict(list)
    for index, event in enumerate(events.parsed):
        leaves = flatten(event.document)
        for name, pattern in patterns.items():
            if matches_leaves(pattern, leaves):
                matched[name].append(index)
    return matched


@dataclass
class _Deliveries:
    """The rows of a delivery file as they come to be, and what the manifest says of them."""

    job: RouteJob
    events: _Events
    ids: list[bytes] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    matched: dict[str, list[int]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    failed_rows: list[int] = field(default_factory=list)
    pieces: list[list[Any]] = field(default_factory=list)

    def add(self, route: _Route, indexes: list[int]) -> None:
        """Render one target's deliveries of the given events and cut them into pieces."""
        name = f"{route.rule.name}/{route.target.name}"
        first = len(self.ids)
        cut = _PieceCutter(self.job, route)
        for index in indexes:
            row = len(self.ids)
            size = self._render(route, index)
            if size is None:
                self.failed[name] = self.failed.get(name, 0) + 1
                self.failed_rows.append(row)
            else:
                cut.add(row, size)
        self.indexes += indexes
        for column, value in _constants(self.job, route).items():
            self.columns[column] += [value] * len(indexes)
        self.matched[name] = Fingerprint.of(self.ids[first:]).as_list()
        self.pieces += cut.pieces()

    def _render(self, route: _Route, index: int) -> int | None:
        """Append the payload of one delivery; return its size in bytes, None if the transform failed."""
        event, job = self.events.parsed[index], self.job
        rule, target = route.rule.name, route.target.name
        raw_id = delivery_id(job.bus, event.source, event.id, rule, target, job.replay_id)
        scope = Scope(rule, job.bus, target, delivery_id_text(raw_id), self.events.arrived_at[index])
        self.ids.append(raw_id)
        try:
            rendered = route.renderer.render(event, scope)
        except TransformFailed as error:
            self._append(None, None, None, str(error))
            return None
        headers = json.dumps(dict(rendered.headers)) if rendered.headers else None
        self._append(rendered.payload, rendered.content_type, headers, None)
        return len(rendered.payload)

    def _append(
        self, payload: bytes | None, content_type: str | None, headers: str | None, failure: str | None
    ) -> None:
        self.columns["payload"].append(payload)
        self.columns["content_type"].append(content_type)
        self.columns["headers"].append(headers)
        self.columns["failure"].append(failure)

    def table(self, piece: Slice) -> pa.Table:
        """Return the rows by schema DELIVERY: sorted by pool, rule, target, offset."""
        taken = self.events.table.take(pa.array(self.indexes, type=pa.int64()))
        count = len(self.ids)
        own = self.columns | {
            "delivery_id": self.ids,
            "event_file": [piece.file] * count,
            "event_row": [self.events.rows[index] for index in self.indexes],
            "order_key": [None] * count,
            "not_before": [None] * count,
        }
        arrays = [
            pa.array(own[column.name], type=column.type) if column.name in own else taken[column.name]
            for column in DELIVERY
        ]
        return pa.Table.from_arrays(arrays, schema=DELIVERY)

    def detail(self, piece: Slice) -> dict[str, Any]:
        """Return what the manifest says of this slice; see SliceResult."""
        return {
            "slice": {"file": piece.file, "row_from": piece.row_from, "row_to": piece.row_to},
            "rows_in": len(self.events.parsed),
            "matched": self.matched,
            "failed": self.failed,
            "failed_rows": rowset.encode(self.failed_rows),
            "pieces": self.pieces,
            "reference_matched": len(self.events.parsed),
        }


def _constants(job: RouteJob, route: _Route) -> dict[str, str]:
    return {
        "rule": route.rule.name,
        "target": route.target.name,
        "rule_version": route.rule.version,
        "bus": job.bus,
    }


class _PieceCutter:
    """Cuts the rows of one target into pieces that fit a chunk; a payload larger than a chunk is a piece alone."""

    def __init__(self, job: RouteJob, route: _Route) -> None:
        self._job = job
        self._head = [route.rule.pool_name, route.rule.weight, route.rule.name, route.target.name]
        self._rows: list[int] = []
        self._size = 0
        self._pieces: list[list[Any]] = []

    def add(self, row: int, size: int) -> None:
        """Take the next row, of `size` payload bytes."""
        too_many = len(self._rows) >= self._job.piece_max_deliveries
        if self._rows and (too_many or self._size + size > self._job.piece_max_bytes):
            self._close()
        self._rows.append(row)
        self._size += size

    def pieces(self) -> list[list[Any]]:
        """Return the pieces: [pool, weight, rule, target, rows, count, bytes]."""
        if self._rows:
            self._close()
        return self._pieces

    def _close(self) -> None:
        self._pieces.append([*self._head, rowset.encode(self._rows), len(self._rows), self._size])
        self._rows, self._size = [], 0
