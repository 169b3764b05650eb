"""Stage schedule_retries: parks in the ledger what its settlement says is to be tried again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from eventbridge import rowset
from eventbridge.delivery import age_begins
from eventbridge.identity import delivery_id_text
from eventbridge.ledger.records import Batch, Parked, Piece
from eventbridge.operation import OperationalEvent, of_rule_held_at_delivery
from eventbridge.order import BLOCKED, HELD_AT, is_marked
from eventbridge.rule import RuleSet
from eventbridge.stages.letter_copies import QUEUE_EXHAUSTED, parked_copies
from eventbridge.stages.ordered_parking import Ordered, OrderedParking, gives_nothing_up, release_after_progress
from eventbridge.stages.outcomes import segments
from eventbridge.stages.settle import first_settlement, settlement_rows, settlements
from eventbridge.stages.workplace import Workplace

_COLUMNS = [
    "rule", "target", "chunk_id", "file", "row", "verdict", "attempts", "due_at", "lane", "held", "arrived_at",
    "not_before", "settled_at", "reason", "delivery_id",
]  # fmt: skip


class _Group(NamedTuple):
    settlement: int
    chunk_id: int
    rule: str
    target: str
    reason: str
    attempts: int
    due_second: int
    lane: str
    held: str
    shard: int | None = None


def schedule_retries(work: Workplace, batch_id: str) -> None:
    """Park every RetryAt and Unknown of a settled batch, with due time, attempts and lane as the settlement says.

    And a copy of each of its dead letters for the dead letter queue of its target, if that has one.
    The only inserter of parked rows. Does nothing before the batch is settled or after it is committed;
    running it again, or twice at once, inserts nothing new.
    """
    batch = work.ledger.batch(batch_id)
    if batch.state == "settling":
        first = first_settlement(work, batch)
        rows = parked_rows(work, batch)
        work.ledger.park([*rows, *parked_copies(work, batch)], first)
        release_after_progress(work, batch, rows)
        # Who dies here is repeated before the batch can be committed, and says it again.
        if held := _held_events(work, batch, rows):
            work.ledger.queue_operational_events(held)


def _held_events(work: Workplace, batch: Batch, rows: Sequence[Parked]) -> list[OperationalEvent]:
    """Return an event for each delivery that a rule is held at: when it was answered last, or found to have no payload.

    What they say follows from the settlement alone, however often they are made.
    """
    held = {row.held.removeprefix(HELD_AT): row for row in rows if row.held.startswith(HELD_AT)}
    if not held:
        return []
    columns = ["delivery_id", "settled_at", "due_at"]
    found = ((delivery_id_text(row["delivery_id"]), row) for row in settlement_rows(work, batch.batch_id, columns))
    times = {name: row["settled_at"] or row["due_at"] for name, row in found if name in held}
    return [
        of_rule_held_at_delivery(row.rule, row.target, name, _place(row), row.reason, times[name], batch.batch_id)
        for name, row in held.items()
    ]


def _place(row: Parked) -> str:
    (span,) = row.order_spans  # of one delivery
    return f"{span.queue.topic}/{span.queue.queue_id}/{span.first}"


def parked_rows(work: Workplace, batch: Batch) -> list[Parked]:
    """Return the parked rows that follow from a batch's settlement, supplements included."""
    groups: dict[_Group, list[dict[str, Any]]] = defaultdict(list)
    order = OrderedParking(work, batch)
    for number, rows in settlements(work, batch.batch_id, _COLUMNS):
        waiting = [row for row in rows if row["verdict"] in ("RetryAt", "Unknown")]
        order.read(waiting)
        for row in waiting:
            groups[_in_order(_group(number, row), order.of(row))].append(row)
    if not groups:
        return []
    context = _Context(work, batch, order)
    return [context.parked(group, rows) for group, rows in groups.items()]


def _group(settlement: int, row: dict[str, Any]) -> _Group:
    return _Group(
        settlement,
        row["chunk_id"],
        row["rule"],
        row["target"],
        row["verdict"],
        row["attempts"],
        _due_second(row),
        row["lane"],
        row["held"] or "",
    )


def _in_order(group: _Group, ordered: Ordered | None) -> _Group:
    if ordered is None:
        return group
    return group._replace(reason=ordered.reason, lane=ordered.lane, held=ordered.held, shard=ordered.shard)


def _due_second(row: dict[str, Any]) -> int:
    """Return the second since 1970 at which a delivery's row is due; never before its policy allows.

    Those of one second share a row. What makes few retry runs of many rows is the doorbell.
    """
    due_at: float = row["due_at"].timestamp()
    if row["verdict"] != "RetryAt" or row["settled_at"] is None:
        return math.floor(due_at)  # it may go at once, or at the whole second from which on it may be sent
    return math.ceil(due_at)


class _Context:
    """What parked rows inherit from the chunks they come from: lineage, time held, runner, size."""

    def __init__(self, work: Workplace, batch: Batch, order: OrderedParking) -> None:
        self._order = order
        self._batch = batch
        self._rule_set = work.rules_of(batch)
        self._tried = {int(file.key.split("-", 1)[0]) for file in segments(work, batch.batch_id)}
        self._pieces: dict[tuple[int, str, str], list[Piece]] = defaultdict(list)
        for chunk in work.ledger.chunks(batch.batch_id):
            for piece in chunk.pieces:
                self._pieces[chunk.chunk_id, piece.rule, piece.target].append(piece)
        self._runner_of = {row.parked_id: row.runner for row in work.ledger.parked_taken_by(batch.batch_id)}

    def parked(self, group: _Group, rows: list[dict[str, Any]]) -> Parked:
        pieces = self._pieces[group.chunk_id, group.rule, group.target]
        files: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            files[row["file"]].append(row["row"])
        held_seconds = max((piece.held_seconds for piece in pieces), default=0.0)
        if group.reason == BLOCKED and not group.held:  # until its key may be tried again it waits, and does not age
            held_seconds += max(0.0, group.due_second - self._batch.planned_at.timestamp())
        if group.held == QUEUE_EXHAUSTED:  # whoever releases it wants it to be tried: its age begins when it is held
            held_seconds = max((row["due_at"] - row["arrived_at"]).total_seconds() for row in rows)
        return Parked(
            batch_id=self._batch.batch_id,
            settlement=group.settlement,
            chunk_id=group.chunk_id,
            runner=self._runner(pieces),
            rule=group.rule,
            target=group.target,
            reason=group.reason,
            attempts=group.attempts,
            due_at=datetime.fromtimestamp(group.due_second, UTC),
            files=tuple((file, rowset.encode(numbers)) for file, numbers in sorted(files.items())),
            count=len(rows),
            size=_share(pieces, len(rows)),
            lane=group.lane,
            held=group.held,
            state="held" if group.held and not is_marked(group.held) else "due",
            held_seconds=held_seconds,
            lineage=self._lineage(group, pieces),
            expires_at=_expires_at(self._rule_set, group, rows, held_seconds),
            order_shard=group.shard,
            order_spans=self._order.spans(rows),
        )

    def _runner(self, pieces: Iterable[Piece]) -> str:
        for piece in pieces:
            runner = self._runner_of.get(piece.parked_id)
            if runner is not None:
                return runner
        return self._batch.runner

    def _lineage(self, group: _Group, pieces: Sequence[Piece]) -> tuple[tuple[str, int], ...]:
        """Return who made attempts at a group; not this batch, if none of it can have been sent.

        A target that is probed every 30 s would else have a day's batches in the lineage of all that waits for it.
        """
        pairs = {pair: None for piece in pieces for pair in piece.lineage}
        untried = group.attempts <= min((piece.attempts for piece in pieces), default=0)
        if group.chunk_id in self._tried and not untried:
            pairs[self._batch.batch_id, group.chunk_id] = None
        return tuple(pairs)


def _share(pieces: list[Piece], count: int) -> int:
    """Return about how many payload bytes `count` deliveries of these pieces have."""
    total = sum(piece.count for piece in pieces)
    return sum(piece.size for piece in pieces) * count // total if total else 0


def _expires_at(rule_set: RuleSet, group: _Group, rows: list[dict[str, Any]], held_seconds: float) -> datetime | None:
    rule = rule_set.rules.get(group.rule)
    if rule is None or group.target not in rule.destinations or gives_nothing_up(rule_set, group.rule, group.target):
        return None
    age = rule.destinations[group.target].retry.maximum_event_age_seconds + held_seconds
    youngest: datetime = max(age_begins(row["arrived_at"], row["not_before"]) for row in rows)
    return youngest + timedelta(seconds=age)
