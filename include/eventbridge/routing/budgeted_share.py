"""Routes one rule's share of a batch within its budget, in this process or in a Spark worker.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from eventbridge.errors import BudgetSpent, PlugInError, TransformFailed, UserError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.ids import Fingerprint, delivery_id, delivery_id_text
from eventbridge.model import rowset
from eventbridge.model.file_detail import RoutedPiece, RoutedShare
from eventbridge.routing.headers import delivery_headers, with_headers, with_replay_id
from eventbridge.routing.job import RouteJob, RuleShare, SliceResult
from eventbridge.routing.pieces import NO_WAIT, PieceLimits, group_by_shard, order_key, pieces_of
from eventbridge.routing.program import WaitingTimes
from eventbridge.routing.share_budget import (
    BUDGET,
    CROWDED,
    ROUTE_FAILED,
    OutOfTime,
    ShareBudget,
    TotalBudget,
    deferred,
    interruptible,
)
from eventbridge.routing.sql_results import EventRow, SqlResult, files_with_result, read_sql_results
from eventbridge.rules import Rule, RuleSet, Target
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import DELIVERY
from eventbridge.transform import Rendered, Renderer, Scope, compile_transform

#: The number of events to read at a time. It is small because a budget may be spent long before the end of a share.
_EVENTS_AT_ONCE = 500
#: The key of the reason for a failure other than a failed transform. It is not a column of a delivery file.
_REASON = "reason"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_total = TotalBudget()

#: A function that returns the renderer of a target.
CompileTarget = Callable[[Target], Renderer]


def compile_target(target: Target) -> Renderer:
    """Return the renderer of a target that `eventbridge.transform` compiles."""
    return compile_transform(target.transform, content_mode=target.content_mode)


def route_share(
    store: Store, rule_set: RuleSet, job: RouteJob, share: RuleShare, compile_target: CompileTarget = compile_target
) -> SliceResult:
    """Render a share event by event, for all targets, until all events are done or the budget is spent.

    The function writes one delivery file. The budget is CPU time. A looping renderer is interrupted; if it does not
    return to Python, the caller must kill this process.
    """
    if share.results is None and _total.is_over(job):  # with results, Spark has already evaluated the share
        return deferred(share, CROWDED)
    rule = rule_set.rules[share.rule]
    deliveries = _Deliveries(job, rule)
    results = _sql_results(store, rule, share)
    own = [target for target in rule.targets.values() if target.transform.form != "SQL" and not share.give_up]
    try:
        renderers = {target.name: compile_target(target) for target in own}
    except PlugInError as error:
        return deferred(share, ROUTE_FAILED, str(error))
    budget = ShareBudget(share.cpu_seconds)
    files = share.files if results is None else files_with_result(share.files, results)
    done: dict[str, list[int]] = {file: [] for file, _ in share.files}
    rejected: dict[str, list[int]] = {file: [] for file, _ in share.files}
    spent = rendered_events = 0
    with interruptible():
        for event_row, row, event in _events(store, job, files):
            result = results[event_row] if results is not None else SqlResult(kept=True)
            try:
                if share.give_up:
                    rendered = deliveries.failed_rows(event_row, row, event, *reversed(share.give_up))
                elif result.failure is not None:
                    rendered = deliveries.failed_rows(event_row, row, event, f"where: {result.failure}", ROUTE_FAILED)
                elif result.kept:
                    rendered = deliveries.render(event_row, row, event, renderers | result.renderers(rule), budget)
                else:
                    rendered = []
                    rejected[event_row[0]].append(event_row[1])
            except (OutOfTime, BudgetSpent):
                if not (share.last_resort and not any(done.values())):
                    break
                text = f"the event used up the CPU budget of its rule in a batch: {share.cpu_seconds:g} s"
                rendered = deliveries.failed_rows(event_row, row, event, text)
                spent += 1
            deliveries.take(rendered)
            done[event_row[0]].append(event_row[1])
            rendered_events += not rendered or any(each.get("failure") is None for each in rendered)
            if spent or budget.is_late:
                break
    _total.charge(job, budget.spent_seconds)
    left = {file: sorted(set(rowset.decode(rows)) - set(done[file])) for file, rows in share.files}
    path = deliveries.write(store, share)
    detail = structs.replace(
        deliveries.detail(),
        done=_row_sets(done),
        rejected=_row_sets(rejected),
        left=_row_sets(left),
        reason=(ROUTE_FAILED if share.hold else BUDGET) if any(left.values()) else "",
        rendered=rendered_events,
        error=share.hold if any(left.values()) else "",
    )
    return SliceResult(share.slice_id, path, deliveries.count, detail)


def _row_sets(rows: dict[str, list[int]]) -> tuple[tuple[str, str], ...]:
    return tuple((file, rowset.encode(numbers)) for file, numbers in rows.items() if numbers)


def _sql_results(store: Store, rule: Rule, share: RuleShare) -> dict[EventRow, SqlResult] | None:
    if not rule.in_sql or share.give_up:
        return None
    if share.results is None:
        raise UserError(
            f"The rule {rule.name} has `where` or an SQL transform, which only Spark can evaluate. "
            "Route it on Spark, with `eventbridge deliver` or the DAGs"
        )
    return read_sql_results(store, share.results)


def _events(
    store: Store, job: RouteJob, files: Iterable[tuple[str, str]]
) -> Iterator[tuple[EventRow, dict[str, Any], Event]]:
    for file, rows in files:
        numbers = list(rowset.decode(rows))
        for start in range(0, len(numbers), _EVENTS_AT_ONCE):
            some = numbers[start : start + _EVENTS_AT_ONCE]
            table = read_rows(store, file, rowset.encode(some))
            for number, row in zip(some, table.to_pylist(), strict=True):
                yield (file, number), row, parse_event(row["body"], max_bytes=job.event_max_size)


@dataclass
class _Deliveries:
    """The rows of a share's delivery file, by target."""

    job: RouteJob
    rule: Rule
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def render(
        self,
        event_row: EventRow,
        row: dict[str, Any],
        event: Event,
        renderers: dict[str, Renderer],
        budget: ShareBudget,
    ) -> list[dict[str, Any]]:
        """Return the delivery rows of one event. Raises OutOfTime or BudgetSpent."""
        rows = []
        for target in sorted(self.rule.targets):
            common = self._row(event_row, row, event, target)
            name = delivery_id_text(common["delivery_id"])
            scope = Scope(self.rule.name, self.job.bus, target, name, row["arrived_at"], budget.of_evaluations)
            with budget.running():
                outcome = _render(renderers[target], event, scope, self.job.replay_id)
            rows.append(common | outcome | self._waiting(target, row["arrived_at"], event))
        return rows

    def _waiting(self, target: str, arrived_at: datetime, event: Event) -> dict[str, Any]:
        waiting = WaitingTimes.from_target(self.rule.targets[target])
        if waiting is None:
            return {}
        try:
            return {"not_before": waiting.not_before(arrived_at, lambda: event.document)}
        except TransformFailed as error:
            return {"payload": None, "content_type": None, "headers": None, "failure": str(error)}

    def failed_rows(
        self, event_row: EventRow, row: dict[str, Any], event: Event, text: str, reason: str = ""
    ) -> list[dict[str, Any]]:
        """Return the delivery rows of an event that fails for all targets; no `reason` means that the transform
        failed."""
        failure = {"failure": text, _REASON: reason}
        return [self._row(event_row, row, event, target) | failure for target in sorted(self.rule.targets)]

    def take(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add the rows of a finished event."""
        for row in rows:
            self.rows.setdefault(row["target"], []).append(row)

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return sum(map(len, self.rows.values()))

    def write(self, store: Store, share: RuleShare) -> str | None:
        """Write the delivery file, sorted by target; return its path, or None if there is nothing to write."""
        rows = [row for target in sorted(self.rows) for row in self.rows[target]]
        if not rows:
            return None
        part = re.sub(r"[^\w.-]", "_", share.slice_id, flags=re.ASCII) + f"-{uuid.uuid4().hex}"
        path = layout.deliveries(self.job.planned_at, self.job.batch_id, self.job.attempt, part)
        write_table(store, path, pa.Table.from_pylist(rows, schema=DELIVERY))
        return path

    def detail(self) -> RoutedShare:
        """Return the record of the file."""
        matched: dict[str, Fingerprint] = {}
        failed: dict[str, int] = {}
        pieces: list[RoutedPiece] = []
        failed_rows: list[int] = []
        reasons: dict[str, list[int]] = {}
        first = 0
        for target in sorted(self.rows):
            rows, name = self.rows[target], f"{self.rule.name}/{target}"
            of_target = [first + index for index, row in enumerate(rows) if row.get("failure") is not None]
            matched[name] = Fingerprint.from_ids(row["delivery_id"] for row in rows)
            if of_target:
                failed[name] = len(of_target)
            failed_rows += of_target
            for index in of_target:
                if reason := rows[index - first].get(_REASON):
                    reasons.setdefault(reason, []).append(index)
            ready = [(first + index, row) for index, row in enumerate(rows) if row.get("failure") is None]
            pieces += self._pieces(target, ready)
            first += len(rows)
        return RoutedShare(
            rule=self.rule.name,
            matched=matched,
            failed=failed,
            failed_rows=rowset.encode(failed_rows),
            pieces=tuple(pieces),
            failure_reasons={reason: rowset.encode(numbers) for reason, numbers in reasons.items()},
        )

    def _pieces(self, target: str, ready: list[tuple[int, dict[str, Any]]]) -> Iterator[RoutedPiece]:
        limits = PieceLimits(self.job.piece_max_deliveries, self.job.piece_max_bytes)
        head = (self.rule.pool_name, self.rule.weight, self.rule.name, target)
        for shard, of_shard in group_by_shard(ready).items():
            numbers = [(number, len(row["payload"]), _wait(row)) for number, row in of_shard]
            columns = np.array(numbers, np.int64).T
            yield from pieces_of(head, columns[0], columns[1], columns[2], limits, shard)

    def _row(self, event_row: EventRow, row: dict[str, Any], event: Event, target: str) -> dict[str, Any]:
        taken = ("topic", "broker", "partition_id", "offset", "source", "event_id", "published_at", "arrived_at")
        raw_id = delivery_id(self.job.bus, event.source, event.id, self.rule.name, target, self.job.replay_id)
        return {name: row[name] for name in taken} | {
            "delivery_id": raw_id,
            "rule": self.rule.name,
            "target": target,
            "rule_version": self.rule.version,
            "bus": self.job.bus,
            "event_file": event_row[0],
            "event_row": event_row[1],
            "order_key": order_key(self.rule.targets[target], event.document, row),
        }


def _wait(row: dict[str, Any]) -> int:
    first: datetime | None = row.get("not_before")
    return NO_WAIT if first is None else (first - _EPOCH) // timedelta(microseconds=1)


def _render(renderer: Renderer, event: Event, scope: Scope, replay_id: str) -> dict[str, Any]:
    try:
        rendered: Rendered = renderer.render(event, scope)
    except TransformFailed as error:
        return {"failure": str(error)}
    headers = with_replay_id(with_headers(None, delivery_headers(rendered, event)), replay_id)
    return {"payload": rendered.payload, "content_type": rendered.content_type, "headers": headers}
