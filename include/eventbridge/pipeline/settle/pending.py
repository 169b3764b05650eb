"""Stage schedule_retries: makes the deliveries that the settlement retries pending in the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED, pending_copies
from eventbridge.delivery.segments import is_of_streaming_task, segments
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Piece
from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.settle.ordered_pending import OrderedPending, dead_letters_nothing, release_after_progress
from eventbridge.pipeline.settle.settlement import first_settlement, settled_as
from eventbridge.pipeline.settle.span_pending import SpanPending
from eventbridge.pipeline.settle.waiting import COLUMNS, PendingGroup, WaitingRows
from eventbridge.policy.deadline import late_reported_before
from eventbridge.policy.operational_event import OperationalEvent, of_rule_on_hold_at_delivery
from eventbridge.policy.ordering import BLOCKED, delivery_on_hold_at, is_marked
from eventbridge.rules import RuleSet
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import time_at


@instrumented("schedule_retries")
def schedule_retries(runtime: Runtime, batch_id: str) -> None:
    """Record the retries of a settled batch, with due time, attempts and lane from the settlement.

    Also records a copy of each dead letter whose target has a dead letter queue. This stage alone inserts pending rows.
    Does nothing before the batch is settled or after it is committed; running it again, or twice at once, inserts
    nothing new.
    """
    batch = runtime.ledger.batch(batch_id)
    if batch.state == "settling":
        first = first_settlement(runtime, batch)
        rows = pending_rows(runtime, batch)
        runtime.ledger.add_pending([*rows, *pending_copies(runtime, batch)], first)
        release_after_progress(runtime, batch, rows)
        # A task that dies here is repeated before the batch can be committed, and queues the events again.
        if held := _on_hold_events(runtime, batch, rows):
            runtime.ledger.queue_operational_events(held)


def _on_hold_events(runtime: Runtime, batch: Batch, pending: Sequence[PendingDeliveries]) -> list[OperationalEvent]:
    """Return an event for each delivery that puts its rule on hold, with the time of its last response or failure.

    The events follow from the settlement alone, so repeating this makes the same events.
    """
    held = {name: row for row in pending if (name := delivery_on_hold_at(row.held)) is not None}
    if not held:
        return []
    columns = ["delivery_id", "settled_at", "due_at"]
    found = (table.to_pylist() for _, table in settled_as(runtime, batch.batch_id, ["retry_scheduled"], columns))
    rows = ((delivery_id_text(row["delivery_id"]), row) for some in found for row in some)
    times = {name: row["settled_at"] or row["due_at"] for name, row in rows if name in held}
    return [
        of_rule_on_hold_at_delivery(row.rule, row.target, name, _place(row), row.reason, times[name], batch.batch_id)
        for name, row in held.items()
    ]


def _place(row: PendingDeliveries) -> str:
    (span,) = row.order_spans  # of one delivery
    return f"{span.partition.topic}/{span.partition.partition_id}/{span.first}"


def pending_rows(runtime: Runtime, batch: Batch) -> list[PendingDeliveries]:
    """Return the pending rows that follow from a batch's settlement, including its supplements."""
    rows = []
    order, spans, context = OrderedPending(runtime, batch), SpanPending(runtime, batch), _PendingContext(runtime, batch)
    for number, table in settled_as(runtime, batch.batch_id, ["retry_scheduled", "unknown"], COLUMNS):
        waiting = WaitingRows(table)
        order.enter(waiting)
        spans.enter(waiting)
        rows += [context.pending(number, waiting, *group) for group in waiting.groups()]
    return rows


class _PendingContext:
    """What pending rows inherit from their chunks: lineage, time on hold, runner and size."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._batch = batch
        self._rule_set = runtime.rules_of(batch)
        files = segments(runtime, batch.batch_id)
        self._tried = {int(file.key.split("-", 1)[0]) for file in files if not is_of_streaming_task(file)}
        self._in_streaming_task = any(map(is_of_streaming_task, files))
        self._pieces: dict[tuple[int, str, str], list[Piece]] = defaultdict(list)
        for chunk in runtime.ledger.chunks(batch.batch_id):
            for piece in chunk.pieces:
                self._pieces[chunk.chunk_id, piece.rule, piece.target].append(piece)
        self._runner_of = {row.pending_id: row.runner for row in runtime.ledger.pending_taken_by(batch.batch_id)}

    def pending(self, settlement: int, waiting: WaitingRows, group: PendingGroup, at: Rows) -> PendingDeliveries:
        pieces = self._pieces[group.chunk_id, group.rule, group.target]
        on_hold_seconds = max((piece.on_hold_seconds for piece in pieces), default=0.0)
        if group.reason == BLOCKED and not group.held:  # it waits until its key may be tried again, and does not age
            on_hold_seconds += max(0.0, group.due_second - self._batch.planned_at.timestamp())
        if group.held == QUEUE_EXHAUSTED:  # if it is released it must be tried: its age begins with the hold
            on_hold_seconds = int((waiting.due_at[at] - waiting.arrived_at[at]).max()) / 1e6
        published_at, late_reported_at = self._timed(group, time_at(int(waiting.published_at[at].max())))
        return PendingDeliveries(
            batch_id=self._batch.batch_id,
            settlement=settlement,
            chunk_id=group.chunk_id,
            runner=self._runner(pieces),
            rule=group.rule,
            target=group.target,
            reason=group.reason,
            attempts=group.attempts,
            due_at=datetime.fromtimestamp(group.due_second, UTC),
            files=tuple(
                sorted((file, row_vectors.encode(waiting.row[of_file])) for file, of_file in waiting.by_file(at))
            ),
            count=len(at),
            size=_share(pieces, len(at)),
            lane=group.lane,
            held=group.held,
            state="on_hold" if group.held and not is_marked(group.held) else "scheduled",
            on_hold_seconds=on_hold_seconds,
            lineage=self._lineage(group, pieces),
            expires_at=_expires_at(self._rule_set, group, time_at(int(waiting.age_begins[at].max())), on_hold_seconds),
            order_shard=group.shard,
            order_spans=waiting.spans(at),
            published_at=published_at,
            late_reported_at=late_reported_at,
        )

    def _timed(self, group: PendingGroup, youngest: datetime) -> tuple[datetime | None, datetime | None]:
        """Return when the youngest was published, for a target with a deadline, and when running late was reported."""
        rule = self._rule_set.rules.get(group.rule)
        target = rule.targets.get(group.target) if rule is not None else None
        if target is None or target.deliver_within_seconds is None:
            return None, None
        planned_at = self._batch.planned_at
        # the plan of a retry batch reported it before
        was_reported = not self._batch.routes and youngest <= late_reported_before(
            target.deliver_within_seconds, planned_at
        )
        return youngest, planned_at if was_reported else None

    def _runner(self, pieces: Iterable[Piece]) -> str:
        for piece in pieces:
            runner = self._runner_of.get(piece.pending_id)
            if runner is not None:
                return runner
        return self._batch.runner

    def _lineage(self, group: PendingGroup, pieces: Sequence[Piece]) -> tuple[tuple[str, int], ...]:
        """Return the chunks that made attempts at a group; without this batch, if none of it can have been sent.

        Otherwise, a target that is probed every 30 s would have a day's batches in the lineage of all its pending
        deliveries.
        """
        pairs = {pair: None for piece in pieces for pair in piece.lineage}
        untried = group.attempts <= min((piece.attempts for piece in pieces), default=0)
        if (self._in_streaming_task or group.chunk_id in self._tried) and not untried:
            pairs[self._batch.batch_id, group.chunk_id] = None
        return tuple(pairs)


def _share(pieces: list[Piece], count: int) -> int:
    """Return about how many payload bytes `count` deliveries of these pieces have."""
    total = sum(piece.count for piece in pieces)
    return sum(piece.size for piece in pieces) * count // total if total else 0


def _expires_at(rule_set: RuleSet, group: PendingGroup, youngest: datetime, on_hold_seconds: float) -> datetime | None:
    rule = rule_set.rules.get(group.rule)
    if (
        rule is None
        or group.target not in rule.destinations
        or dead_letters_nothing(rule_set, group.rule, group.target)
    ):
        return None
    age = rule.destinations[group.target].retry.maximum_event_age_seconds + on_hold_seconds
    return youngest + timedelta(seconds=age)
