"""Runs the schedule_retries stage: records the deliveries that must be tried again as pending rows in the ledger.

Each shard of an ordered target has pending rows of its own, with the positions of their events. A span is always in one
pending row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from eventbridge.delivery.queue_copies import QUEUE_EXHAUSTED, pending_copies, read_deliveries
from eventbridge.delivery.segments import is_of_streaming_task, segments
from eventbridge.event.ids import delivery_id_text
from eventbridge.model import row_vectors
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Piece
from eventbridge.model.outcome import NOT_BEFORE
from eventbridge.model.partition import Partition
from eventbridge.model.pending import PendingDeliveries
from eventbridge.model.queue import IN_QUEUE, QUEUE_REASONS
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.settle.settlement import first_settlement, read_settled_as
from eventbridge.pipeline.settle.waiting import COLUMNS, Flags, PendingGroup, WaitingRows
from eventbridge.policy.delivery_windows import late_reported_before
from eventbridge.policy.operational_event import OperationalEvent, delivery_hold_event
from eventbridge.policy.ordering import (
    BEHIND_ITS_KEY,
    BLOCKED,
    POSITION_COLUMNS,
    delivery_on_hold_at,
    is_marked,
    on_hold_at,
    shard_of,
)
from eventbridge.rules import RuleSet
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_CODE, codes_of, column_of, numbers_of, time_at
from eventbridge.targets.queue.fields import queues_of

#: The maximum number of deliveries that one transaction takes from queues.
_SETTLED_AT_ONCE = 1_000


@instrumented("schedule_retries")
def schedule_retries(runtime: Runtime, batch_id: str) -> None:
    """Record the retries of a settled batch, with their due time, attempts and lane from the settlement.

    The stage also records a copy of each dead letter whose target has a dead letter queue. Nothing else inserts pending
    rows. The stage does nothing before the batch is settled or after it is committed; running it again, or twice at the
    same time, inserts nothing new.
    """
    batch = runtime.ledger.batches.get(batch_id)
    if batch.state == "settling":
        first = first_settlement(runtime, batch)
        rows = pending_rows(runtime, batch)
        runtime.ledger.pending.add([*rows, *pending_copies(runtime, batch)], first)
        release_after_progress(runtime, batch, rows)
        _settle_queues(runtime, batch)
        # A task that dies here is repeated before the batch can be committed, and then queues the events again.
        if on_hold := _on_hold_events(runtime, batch, rows):
            runtime.ledger.operational_events.queue(on_hold)


def _settle_queues(runtime: Runtime, batch: Batch) -> None:
    """Take deliveries whose status is final from their queues. Until here the queue has the only record of what
    consumers did."""
    rules = runtime.rules_of(batch)
    queues = {key for targets in queues_of(rules).values() for key in targets}
    if not queues and batch.has_route_stage:  # another batch may dead-letter deliveries of a removed queue
        return

    def is_removed(rule: str, target: str) -> bool:
        return rule not in rules.rules or target not in rules.rules[rule].destinations

    for _, table in read_settled_as(
        runtime, batch.batch_id, ["delivered", "dead_lettered"], ["delivery_id", "rule", "target"]
    ):
        rows = zip(*(table[name].to_pylist() for name in ("delivery_id", "rule", "target")), strict=True)
        ids = [delivery_id_text(delivery_id) for delivery_id, *key in rows if tuple(key) in queues or is_removed(*key)]
        for start in range(0, len(ids), _SETTLED_AT_ONCE):
            runtime.ledger.queues.settle(ids[start : start + _SETTLED_AT_ONCE])


def _on_hold_events(runtime: Runtime, batch: Batch, pending: Sequence[PendingDeliveries]) -> list[OperationalEvent]:
    """Return an operational event for each delivery that puts its rule on hold, with the time of its last response or
    failure.

    The events depend only on the settlement, so a repetition creates the same events.
    """
    on_hold = {name: row for row in pending if (name := delivery_on_hold_at(row.hold_reason)) is not None}
    if not on_hold:
        return []
    columns = ["delivery_id", "settled_at", "due_at"]
    found = (table.to_pylist() for _, table in read_settled_as(runtime, batch.batch_id, ["retry_scheduled"], columns))
    rows = ((delivery_id_text(row["delivery_id"]), row) for some in found for row in some)
    times = {name: row["settled_at"] or row["due_at"] for name, row in rows if name in on_hold}
    return [
        delivery_hold_event(row.rule, row.target, name, _position_of(row), row.reason, times[name], batch.batch_id)
        for name, row in on_hold.items()
    ]


def _position_of(row: PendingDeliveries) -> str:
    (span,) = row.order_spans  # the row has one delivery
    return f"{span.partition.topic}/{span.partition.partition_id}/{span.first}"


def pending_rows(runtime: Runtime, batch: Batch) -> list[PendingDeliveries]:
    """Return the pending rows that follow from a batch's settlement, including its supplements."""
    rows = []
    order, spans, context = OrderedPending(runtime, batch), SpanPending(runtime, batch), _PendingContext(runtime, batch)
    for number, table in read_settled_as(runtime, batch.batch_id, ["retry_scheduled", "unknown"], COLUMNS):
        waiting = WaitingRows(table)
        waiting.kept_reason[waiting.has(waiting.reason, *QUEUE_REASONS)] = waiting.code(IN_QUEUE)
        order.enter(waiting)
        spans.enter(waiting)
        rows += [context.pending(number, waiting, *group) for group in waiting.groups()]
    return rows


class _PendingContext:
    """The values that pending rows inherit from their chunks: lineage, time on hold, runner and size."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._batch = batch
        self._rule_set = runtime.rules_of(batch)
        files = segments(runtime, batch.batch_id)
        self._tried = {int(file.key.split("-", 1)[0]) for file in files if not is_of_streaming_task(file)}
        self._in_streaming_task = any(map(is_of_streaming_task, files))
        self._pieces: dict[tuple[int, str, str], list[Piece]] = defaultdict(list)
        for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id):
            for piece in chunk.pieces:
                self._pieces[chunk.chunk_id, piece.rule, piece.target].append(piece)
        self._runner_of = {row.pending_id: row.runner for row in runtime.ledger.pending.list_taken_by(batch.batch_id)}

    def pending(self, settlement: int, waiting: WaitingRows, group: PendingGroup, at: Rows) -> PendingDeliveries:
        pieces = self._pieces[group.chunk_id, group.rule, group.target]
        on_hold_seconds = max((piece.on_hold_seconds for piece in pieces), default=0.0)
        if group.reason == BLOCKED and not group.hold_reason:  # it does not age while it waits for its key
            on_hold_seconds += max(0.0, group.due_second - self._batch.planned_at.timestamp())
        if (
            group.hold_reason == QUEUE_EXHAUSTED
        ):  # its time before the hold does not count as age, so that it is tried once released
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
                sorted((file, row_vectors.encode(waiting.row[of_file])) for file, of_file in waiting.group_by_file(at))
            ),
            count=len(at),
            size=_share(pieces, len(at)),
            lane=group.lane,
            hold_reason=group.hold_reason,
            state="on_hold" if group.hold_reason and not is_marked(group.hold_reason) else "scheduled",
            on_hold_seconds=on_hold_seconds,
            lineage=self._lineage(group, pieces),
            expires_at=_expires_at(self._rule_set, group, time_at(int(waiting.age_begins[at].max())), on_hold_seconds),
            order_shard=group.shard,
            order_spans=waiting.spans(at),
            published_at=published_at,
            late_reported_at=late_reported_at,
        )

    def _timed(self, group: PendingGroup, youngest: datetime) -> tuple[datetime | None, datetime | None]:
        """Return when the youngest delivery was published, and when it was reported late.

        Both are None without a deadline.
        """
        rule = self._rule_set.rules.get(group.rule)
        target = rule.targets.get(group.target) if rule is not None else None
        if target is None or target.deliver_within_seconds is None:
            return None, None
        planned_at = self._batch.planned_at
        # planning a retry batch reports all deliveries that are late by then
        was_reported = not self._batch.has_route_stage and youngest <= late_reported_before(
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
        """Return the chunks that made attempts at a group's deliveries; the current chunk is included only if it may
        have sent some of them.

        If chunks without an attempt were included, each pending delivery of a target that is probed every 30 s would
        have all retry batches of a day in its lineage.
        """
        pairs = {pair: None for piece in pieces for pair in piece.lineage}
        untried = group.attempts <= min((piece.attempts for piece in pieces), default=0)
        if (self._in_streaming_task or group.chunk_id in self._tried) and not untried:
            pairs[self._batch.batch_id, group.chunk_id] = None
        return tuple(pairs)


def _share(pieces: list[Piece], count: int) -> int:
    """Return approximately how many payload bytes `count` deliveries of these pieces have."""
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


#: The reasons for which a delivery is dead-lettered or, if its target allows no dead letters, puts its rule on hold.
ENDS = frozenset(
    {"maximum_retry_attempts", "maximum_event_age", "non_retryable", "transform_failed", "target_gone", "route_failed"}
)


class OrderedPending:
    """Finds the deliveries of ordered targets in one batch, and decides how they are pending."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._batch = batch
        self._rule_set = runtime.rules_of(batch)
        self._notes: dict[str, list[tuple[str, Rows]]] = defaultdict(list)
        for taken in runtime.ledger.pending.list_taken_by(batch.batch_id):
            for file, rows in taken.files if is_marked(taken.hold_reason) else ():
                self._notes[file].append((taken.hold_reason, row_vectors.decode(rows)))

    def enter(self, waiting: WaitingRows) -> None:
        """Set the shard, position, reason and hold reason of the rows of ordered targets."""
        in_queue = waiting.has(waiting.reason, *QUEUE_REASONS)  # which keeps the order of its deliveries itself
        found = np.flatnonzero(waiting.target_flags(partial(may_be_ordered, self._rule_set)) & ~in_queue)
        for file, at in waiting.group_by_file(found):
            self._set_positions(waiting, file, at)
        ordered = waiting.shard != NO_CODE
        if not ordered.any():
            return
        shown = waiting.has(waiting.status, "retry_scheduled") & waiting.has(waiting.reason, *ENDS, BLOCKED) & ordered
        waiting.kept_reason[ordered] = waiting.status[ordered]
        waiting.kept_reason[shown] = waiting.reason[shown]
        self._hold(waiting, ordered & (waiting.hold_reason == NO_CODE))

    def _set_positions(self, waiting: WaitingRows, file: str, at: Rows) -> None:
        rows = waiting.row[at]
        wanted = np.unique(rows)
        table = read_deliveries(self._runtime.store, file, row_vectors.encode(wanted), [*POSITION_COLUMNS, "order_key"])
        table = table.take(column_of(np.searchsorted(wanted, rows), pa.int64()))
        key_of, keys = codes_of(table["order_key"])
        waiting.shard[at] = np.array([*map(shard_of, keys), NO_CODE])[key_of]
        waiting.offset[at] = numbers_of(table["offset"])
        names = table.select(POSITION_COLUMNS[:-1]).to_pydict().values()
        waiting.partition[at] = [waiting.partition_code(Partition(*each)) for each in zip(*names, strict=True)]

    def _hold(self, waiting: WaitingRows, free: Flags) -> None:
        """Set the hold reason of rows that the settlement did not put on hold."""
        blocked = waiting.has(waiting.reason, BLOCKED)
        untried = waiting.has(waiting.status, "unknown") | blocked | waiting.has(waiting.reason, NOT_BEFORE)
        if self._batch.kind == "retry" and not self._batch.has_route_stage:
            waiting.hold_reason[free & blocked] = waiting.code(BEHIND_ITS_KEY)
        for file, at in waiting.group_by_file(np.flatnonzero(free & untried)) if self._notes else ():
            for note, rows in self._notes[file]:  # keep an operator's decision that the push did not carry out
                waiting.hold_reason[at[np.isin(waiting.row[at], rows)]] = waiting.code(note)
        ended = free & ~untried & waiting.has(waiting.reason, *ENDS)
        if ended.any():
            ended &= waiting.target_flags(partial(dead_letters_nothing, self._rule_set))
        for number in np.flatnonzero(ended).tolist():
            waiting.hold_reason[number] = waiting.code(on_hold_at(delivery_id_text(waiting.ids[number].tobytes())))


def dead_letters_nothing(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target has `errors_tolerance: none`; False if no rule names it."""
    found = rules.rules.get(rule)
    return found is not None and target in found.destinations and found.destinations[target].errors_tolerance == "none"


def may_be_ordered(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target is ordered, or is missing from the rules, so that only its deliveries show whether it
    is."""
    found = rules.rules.get(rule)
    return found is None or target not in found.destinations or found.destinations[target].ordered


def release_after_progress(runtime: Runtime, batch: Batch, pending: Sequence[PendingDeliveries]) -> None:
    """In each shard in which a retry batch settled deliveries, make the deliveries due that are waiting for earlier
    ones of their keys.

    The function may be called repeatedly before the batch is committed, because until then no other batch takes rows of
    these shards.
    """
    if batch.has_route_stage:
        return
    taken: Counter[tuple[str, str, int]] = Counter()
    for row in runtime.ledger.pending.list_taken_by(batch.batch_id):
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] += row.count
    for row in pending:
        if row.order_shard is not None:
            taken[row.rule, row.target, row.order_shard] -= row.count
    for (rule, target, shard), settled in taken.items():
        if settled > 0:
            runtime.ledger.order.release_shard(rule, target, shard)


class SpanPending:
    """Finds those pieces of a batch's chunks whose targets take spans, and keeps the deliveries of such a piece
    together."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._batch = batch
        self._takes_spans = partial(takes_spans, runtime.rules_of(batch))

    @cached_property
    def _pieces(self) -> list[tuple[int, int, Piece]]:
        return [
            (chunk.chunk_id, number, piece)
            for chunk in self._runtime.ledger.chunks.list_for_batch(self._batch.batch_id)
            for number, piece in enumerate(chunk.pieces)
            if self._takes_spans(piece.rule, piece.target)
        ]

    def enter(self, waiting: WaitingRows) -> None:
        """Set the spans of rows. A span is due when the last of its deliveries is due."""
        of_targets = waiting.target_flags(self._takes_spans)
        if not of_targets.any():  # saves reading all chunks for nothing
            return
        for chunk_id, number, piece in self._pieces:
            of_chunk = of_targets & (waiting.chunk_id == chunk_id) & (waiting.file == waiting.code(piece.file))
            at = np.flatnonzero(of_chunk)
            at = at[np.isin(waiting.row[at], row_vectors.decode(piece.rows))]
            if len(at):
                waiting.span[at] = number
                waiting.due_at[at] = waiting.due_at[at].max()


def takes_spans(rules: RuleSet, rule: str, target: str) -> bool:
    """Return whether a target or dead letter queue takes spans; see `SpanPending`."""
    found = rules.rules.get(rule)
    spec = found.destinations.get(target) if found is not None else None
    return spec is not None and TARGET_TYPES.get_in_force(spec.type).takes_of(spec) == "spans"
