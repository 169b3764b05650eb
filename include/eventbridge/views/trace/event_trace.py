"""Follows one event through all its batches: attempts, outcomes, pending deliveries, dead letters.

The ledger names the batches and their files. The ids of the event's deliveries are computed from the rules of each
batch. A settlement names the chunk of each delivery, so only the segments of these chunks are read for attempts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.queue_copies import copy_id
from eventbridge.delivery.segments import segments
from eventbridge.errors import NotFoundError, ReconciliationError, StoreError
from eventbridge.event.ids import delivery_id, delivery_id_text
from eventbridge.model import rowset
from eventbridge.model.batch import Batch
from eventbridge.model.outcome import SHADOW_FAILED, SHADOW_NOT_SENT
from eventbridge.model.pending import DeferredMatch, PendingDeliveries
from eventbridge.model.queue import IN_QUEUE
from eventbridge.model.redelivery import Redriven, Replay, Replayed
from eventbridge.model.storage import is_kept
from eventbridge.model.why import DeliveryResult, DeliveryState, EventName, Landing, Step
from eventbridge.processes import check_cancelled
from eventbridge.runtime.batch_files import read_dead_letters
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import flags_of, numbers_of, plain_rows
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.schemas import SETTLEMENT
from eventbridge.views.event_status import redriven_by
from eventbridge.views.queues import queue_text

_ATTEMPT_COLUMNS = [
    "delivery_id", "rule", "target", "attempt", "sent", "started_at", "duration_ms", "outcome", "reason", "code",
    "error_class", "error", "response_head",
]  # fmt: skip
_DEAD_LETTER_COLUMNS = [
    "delivery_id", "rule", "target", "bus", "topic", "broker", "partition_id", "offset", "source", "event_id", "reason",
    "detail", "attempts", "arrived_at", "last_attempt_at", "batch_id",
]  # fmt: skip
_STATES: dict[str, DeliveryState] = {"delivered": "delivered", "dead_lettered": "dead_lettered"}
_Row = Mapping[str, Any]

#: The detail of a delivery with the status `unknown` and no recorded attempt.
_NO_RESPONSE = "no attempt is recorded: the delivery was not sent, or its process ended before it recorded the attempt"


class EventTrace:
    """The trace of one event, as far as it can be read; see `follow`."""

    def __init__(self, runtime: Runtime, name: EventName) -> None:
        self._runtime = runtime
        self._name = name
        self._replay_of: dict[bytes, str] = {}  # by each id that a delivery of the event may have: its replay, or ""
        #: The rows of the event, its deliveries and its dead letters, by file.
        self._rows: dict[str, set[int]] = defaultdict(set)
        self._known_batches: set[str] = set()
        self._batches_to_follow: list[str] = []
        self.steps: list[Step] = []
        self.deliveries: dict[bytes, DeliveryResult] = {}
        self.deferred: set[str] = set()  # rules that deferred a match of the event, even if it was routed since
        self.unreadable: list[str] = []

    def follow(self, landings: Iterable[Landing]) -> None:
        """Follow the event from its landings through its batches, in the order in which they were planned."""
        for landing in landings:
            self._rows[landing.file].add(landing.row)
            self._follow_batches(landing.batch_id)
            self._add_replays(landing)
        while self._batches_to_follow:
            check_cancelled()
            self._batches_to_follow.sort(reverse=True)  # batch ids sort by planning time
            self._add_batch(self._batches_to_follow.pop())

    def _follow_batches(self, *batch_ids: str | None) -> None:
        for each in batch_ids:
            if each is not None and each not in self._known_batches:
                self._known_batches.add(each)
                self._batches_to_follow.append(each)

    def _add_batch(self, batch_id: str) -> None:
        try:
            batch = self._runtime.ledger.batches.get(batch_id)
        except NotFoundError:
            self.steps.append(
                Step(None, "pruned", batch_id, detail="everything that the batch stored is past its retention")
            )
            return
        for read in (self._collect_ids, self._add_outcomes, self._add_dead_letters):
            try:
                read(batch)
            except (StoreError, ReconciliationError) as error:
                self.unreadable.append(f"batch {batch_id}: {error}")
        self._add_pending(batch_id)
        self._add_deferred_matches(batch)

    def _collect_ids(self, batch: Batch) -> None:
        """Collect the ids that the event's deliveries have under the batch's rules.

        For a replay or redrive, also collect the event's rows in the files to which the batch copied its events.
        """
        if batch.bus != self._name.position.bus or not self._name.event_id:
            return
        replays = {"", batch.replay_id} if batch.kind == "replay" else {""}
        for rule in self._runtime.rules_of(batch).rules.values():
            if rule.bus == batch.bus and self._name.rule in (None, rule.name):
                for target in rule.targets:
                    for replay in replays:
                        name = delivery_id(batch.bus, self._name.source, self._name.event_id, rule.name, target, replay)
                        self._replay_of[name] = replay
        if batch.kind in ("replay", "redrive") and is_kept(batch.kept, "archive"):
            for file in self._runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"):
                if file.path is not None:
                    table = read_table(self._runtime.store, file.path, ["topic", "broker", "partition_id", "offset"])
                    self._rows[file.path].update(self._rows_at_position(table))

    def _add_outcomes(self, batch: Batch) -> None:
        """Add the attempts and outcomes of a batch or, if it is not settled, its deliveries and attempts so far."""
        if not is_kept(batch.kept, "all"):
            self._add_pruned(batch)
            return
        files = [
            each.path
            for each in self._runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
            if each.path is not None
        ]
        if not files:
            self._add_in_progress(batch)
            return
        rows = [row for path in files for row in self._event_rows(path, SETTLEMENT.names)]
        chunks = {row["chunk_id"] for row in rows if row["chunk_id"] is not None}
        tried = {row["delivery_id"]: row for row in self._attempts(batch, chunks)}
        for row in rows:
            self._rows[row["file"]].add(row["row"])
            self._add_settled(batch, row, tried.get(row["delivery_id"]))

    def _add_pruned(self, batch: Batch) -> None:
        detail = "attempts and outcomes of the batch are past their retention and were removed"
        self.steps.append(Step(batch.committed_at, "pruned", batch.batch_id, detail=detail))

    def _add_in_progress(self, batch: Batch) -> None:
        """Add the event's deliveries in a batch that is not settled."""
        if batch.has_route_stage:
            for file in self._runtime.ledger.files.list_for_batch(batch.batch_id, "delivery"):
                if file.path is not None:
                    for row in self._event_rows(file.path, ["delivery_id", "rule", "target"]):
                        self._record_status(batch, row, "in_progress", 0, None)
        columns = ["delivery_id", "rule", "target", "attempts", "reason"]
        for taken, table in redriven_by(self._runtime, batch, columns):
            numbers = {row: number for number, row in enumerate(rowset.decode(taken.rows))}
            wanted = sorted(numbers[row] for row in self._rows.get(taken.file, ()) if row in numbers)
            for row in plain_rows(table.take(wanted)):
                if row["delivery_id"] is not None:
                    self._record_status(batch, row, "in_progress", len(row["attempts"]), row["reason"])
        last = {row["delivery_id"]: row for row in self._attempts(batch, None)}
        for row in last.values():
            self._record_status(batch, row, "in_progress", row["attempt"], row["reason"])

    def _attempts(self, batch: Batch, chunk_ids: Collection[int] | None) -> list[dict[str, Any]]:
        files = segments(self._runtime, batch.batch_id, chunk_ids)
        found = [
            row for file in files if file.path is not None for row in self._event_rows(file.path, _ATTEMPT_COLUMNS)
        ]
        shadows = _shadows_of(self._runtime, batch) if found else frozenset()
        self.steps += (_as_shadow(_attempt_step(batch, row), _shadow_failure(shadows, row, row)) for row in found)
        return found

    def _add_settled(self, batch: Batch, row: dict[str, Any], attempt: dict[str, Any] | None) -> None:
        """Record the status of a delivery; the outcome is a step only if the last attempt does not show it."""
        state = _STATES.get(row["status"], "on_hold" if row["hold_reason"] else "scheduled")
        failed = _shadow_failure(_shadows_of(self._runtime, batch), row, attempt) if state == "delivered" else None
        state = state if failed is None else "shadow"
        self._record_status(
            batch,
            row,
            state,
            row["attempts"],
            failed or row["reason"],
            due_at=row["due_at"],
            hold_reason=row["hold_reason"],
        )
        if attempt is None:
            self.steps.append(_as_shadow(_settled_step(batch, row), failed))

    def _record_status(
        self, batch: Batch, row: dict[str, Any], state: DeliveryState, attempts: int, reason: str | None, **more: Any
    ) -> None:
        """Replace the status that an earlier batch gave a delivery; `delivered` is replaced only by `delivered`."""
        name = row["delivery_id"]
        if name in self.deliveries and self.deliveries[name].state == "delivered" and state != "delivered":
            return
        self.deliveries[name] = DeliveryResult(
            rule=row["rule"],
            target=row["target"],
            delivery_id=delivery_id_text(name),
            replay_id=self._replay_of.get(name, ""),
            state=state,
            attempts=attempts,
            reason=reason,
            batch_id=batch.batch_id,
            file=row.get("file"),
            row=row.get("row"),
            **{key: value for key, value in more.items() if state in ("scheduled", "on_hold")},
        )

    def _add_dead_letters(self, batch: Batch) -> None:
        if not is_kept(batch.kept, "dead_letters"):
            return
        for file in self._runtime.ledger.files.list_for_batch(batch.batch_id, "dead_letter"):
            if file.path is None:
                continue
            names = read_dead_letters(
                self._runtime.store, file.path, None, ["delivery_id", "topic", "broker", "partition_id", "offset"]
            )
            rows = sorted({*self._rows_of_event(names), *self._malformed_rows(names)})
            if rows:
                dead_letters = plain_rows(
                    read_dead_letters(self._runtime.store, file.path, rowset.encode(rows), _DEAD_LETTER_COLUMNS)
                )
                for number, dead_letter in zip(rows, dead_letters, strict=True):
                    self._add_dead_letter(batch, file.path, number, dead_letter)

    def _malformed_rows(self, names: pa.Table) -> Iterator[int]:
        return (row for row in self._rows_at_position(names) if names["delivery_id"][row].as_py() is None)

    def _add_dead_letter(self, batch: Batch, file: str, row: int, dead_letter: dict[str, Any]) -> None:
        self._rows[file].add(row)
        name = dead_letter["delivery_id"]
        if name is not None:
            self._replay_of[copy_id(dead_letter)] = ""
            if not is_kept(batch.kept, "all"):  # the dead letter is the only record of the delivery that still exists
                self.steps += (_dead_letter_attempt_step(batch, dead_letter, each) for each in dead_letter["attempts"])
                self._record_status(
                    batch, dead_letter, "dead_lettered", len(dead_letter["attempts"]), dead_letter["reason"]
                )
        self.steps.append(_dead_letter_step(batch, dead_letter))
        for taken in self._runtime.ledger.redrives.list_taken_from(file):
            if _holds(taken.rows, {row}):
                self._follow_batches(taken.batch_id)
                self.steps.append(_redrive_step(taken, self._planning_time(taken.batch_id), dead_letter))

    def _add_pending(self, batch_id: str) -> None:
        for row in self._runtime.ledger.pending.list_for_batch(batch_id):
            if self._concerns_event(row.files):
                self._follow_batches(row.taken_by, row.closed_by)
                self.steps.append(self._with_queue(row, _pending_step(row)))
                self._update_pending(row)

    def _with_queue(self, row: PendingDeliveries, step: Step) -> Step:
        """Return the step of a pending delivery; if it waits in a queue, with what consumers have done there."""
        if row.reason != IN_QUEUE or row.state != "scheduled" or row.taken_by is not None:
            return step
        mine = [
            name
            for name, each in self.deliveries.items()
            if (each.rule, each.target, each.batch_id) == (row.rule, row.target, row.batch_id)
        ]
        found = self._runtime.ledger.queues.find(list(map(delivery_id_text, mine)))
        return replace(step, detail=queue_text(found[0], self._runtime.ledger.now())) if found else step

    def _update_pending(self, row: PendingDeliveries) -> None:
        """Apply a change that the ledger has of a pending delivery, such as a release, to the status at settlement."""
        if row.state == "closed" or row.taken_by is not None:
            return
        for name, each in self.deliveries.items():
            if (each.rule, each.target, each.batch_id) == (row.rule, row.target, row.batch_id) and each.state in (
                "scheduled",
                "on_hold",
            ):
                changed = {"state": row.state, "due_at": row.due_at, "hold_reason": row.hold_reason or None}
                self.deliveries[name] = DeliveryResult(**vars(each) | changed)

    def _add_deferred_matches(self, batch: Batch) -> None:
        for row in self._runtime.ledger.deferred_matches.list_for_batch(batch.batch_id):
            if self._concerns_event(row.files):
                self.deferred.add(row.rule)
                self._follow_batches(row.taken_by, row.closed_by)
                self.steps.append(_deferred_match_step(row))

    def _add_replays(self, landing: Landing) -> None:
        bus, at = self._name.position.bus, landing.planned_at
        for replay in self._runtime.ledger.replays.all():
            check_cancelled()
            if replay.bus != bus or not replay.since <= at < replay.until:
                continue
            for taken in self._runtime.ledger.replays.searched_in(replay.replay_id, landing.file):
                if taken.batch_id is not None and _holds(taken.rows, {landing.row}):
                    self._follow_batches(taken.batch_id)
                    self.steps.append(_replay_step(replay, taken, self._planning_time(taken.batch_id)))

    def _planning_time(self, batch_id: str) -> Any:
        try:
            return self._runtime.ledger.batches.get(batch_id).planned_at
        except NotFoundError:
            return None

    def _event_rows(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of the event's deliveries in a file; for other deliveries, only the id is read."""
        rows = self._rows_of_event(read_table(self._runtime.store, path, ["delivery_id"]))
        return plain_rows(read_rows(self._runtime.store, path, rowset.encode(rows), columns)) if rows else []

    def _rows_of_event(self, table: pa.Table) -> list[int]:
        # `pa.array` is not used, because its first call imports pandas, which takes half a CPU-second.
        names = pa.py_buffer(b"".join(self._replay_of))
        ids = pa.Array.from_buffers(SETTLEMENT.field("delivery_id").type, len(self._replay_of), [None, names])
        found: list[int] = np.flatnonzero(flags_of(pc.is_in(table["delivery_id"], value_set=ids))).tolist()
        return found

    def _rows_at_position(self, table: pa.Table) -> list[int]:
        position = self._name.position
        wanted = (position.partition_id, position.topic, position.broker)
        columns = [table[name] for name in ("partition_id", "topic", "broker")]
        near = np.flatnonzero(numbers_of(table["offset"]) == position.offset).tolist()
        return [row for row in near if tuple(column[row].as_py() for column in columns) == wanted]

    def _concerns_event(self, files: Iterable[tuple[str, str]]) -> bool:
        return any(_holds(rows, self._rows[file]) for file, rows in files if file in self._rows)


def _holds(rows: str, wanted: set[int]) -> bool:
    return any(row in run for run in rowset.runs(rows) for row in wanted)


def _attempt_step(batch: Batch, row: _Row) -> Step:
    return Step(
        at=row["started_at"],
        what="attempt",
        batch_id=batch.batch_id,
        **_delivery(row),
        attempt=row["attempt"] if row["sent"] else None,
        outcome=row["outcome"],
        code=row["code"],
        reason=row["reason"],
        detail=_error(row),
        duration_ms=row["duration_ms"] if row["sent"] else None,
        response_head=_head(row),
    )


def _settled_step(batch: Batch, row: _Row) -> Step:
    return Step(
        at=row["settled_at"] or batch.committed_at,
        what="settled",
        batch_id=batch.batch_id,
        **_delivery(row),
        outcome=row["status"],
        reason=row["reason"],
        detail=row["detail"] or (_NO_RESPONSE if row["status"] == "unknown" else None),
    )


def _dead_letter_step(batch: Batch, dead_letter: _Row) -> Step:
    return Step(
        at=dead_letter["last_attempt_at"] or batch.committed_at or dead_letter["arrived_at"],
        what="dead-lettered",
        batch_id=batch.batch_id,
        **_delivery(dead_letter),
        reason=dead_letter["reason"],
        detail=dead_letter["detail"],
    )


def _dead_letter_attempt_step(batch: Batch, dead_letter: _Row, attempt: _Row) -> Step:
    return Step(
        at=attempt["started_at"],
        what="attempt",
        batch_id=batch.batch_id,
        **_delivery(dead_letter),
        attempt=attempt["number"],
        outcome=attempt["outcome"],
        code=attempt["code"],
        detail=_error(attempt),
        duration_ms=attempt["duration_ms"],
        response_head=_head(attempt),
    )


def _redrive_step(taken: Redriven, at: datetime | None, dead_letter: _Row) -> Step:
    return Step(
        at=at,
        what="redriven",
        batch_id=taken.batch_id,
        **_delivery(dead_letter),
        detail=f"redrive {taken.redrive_id}",
    )


def _pending_step(row: PendingDeliveries) -> Step:
    taken = row.closed_by or row.taken_by
    if taken:
        detail = f"taken up by batch {taken}"
    else:
        detail = f"on hold: {row.hold_reason}" if row.state == "on_hold" else f"due at {row.due_at:%Y-%m-%d %H:%M:%S}"
    return Step(
        at=row.pending_at,
        what="pending",
        batch_id=row.batch_id,
        rule=row.rule,
        target=row.target,
        attempt=row.attempts or None,
        outcome=row.state,
        reason=row.reason,
        detail=detail,
    )


def _deferred_match_step(row: DeferredMatch) -> Step:
    taken = row.closed_by or row.taken_by
    if taken:
        detail = f"taken up by batch {taken}"
    else:
        detail = "on hold" if row.state == "on_hold" else f"due at {row.due_at:%Y-%m-%d %H:%M:%S}"
    return Step(
        at=row.made_at,
        what="deferred",
        batch_id=row.batch_id,
        rule=row.rule,
        outcome=row.state,
        reason=row.reason,
        detail=detail,
    )


def _replay_step(replay: Replay, taken: Replayed, at: datetime | None) -> Step:
    part = replay.parts[taken.part]
    return Step(
        at=at,
        what="replayed",
        batch_id=taken.batch_id or "",
        rule=part.rule or None,
        target=part.target or None,
        detail=f"replay {replay.replay_id}",
    )


def _delivery(row: _Row) -> dict[str, Any]:
    """Return the rule, the target and the id of a row's delivery; a malformed event has none of them."""
    name = row["delivery_id"]
    return {"rule": row["rule"], "target": row["target"], "delivery_id": name and delivery_id_text(name)}


def _error(row: _Row) -> str | None:
    return ": ".join(filter(None, (row["error_class"], row["error"]))) or None


def _head(row: _Row) -> str | None:
    head: bytes | None = row["response_head"]
    return head.decode("utf-8", "replace") if head else None


def _shadows_of(runtime: Runtime, batch: Batch) -> frozenset[tuple[str, str]]:
    """Return the shadow targets of a batch; a batch that does not route sends nothing to shadows."""
    return frozenset(runtime.rules_of(batch).shadows()) if batch.has_route_stage else frozenset()


def _shadow_failure(
    shadows: frozenset[tuple[str, str]], row: Mapping[str, Any], attempt: Mapping[str, Any] | None
) -> str | None:
    """Return why a shadow failed, from the delivery's row and last attempt.

    Returns None if the delivery did not fail, or if its target is not a shadow.
    """
    if (row["rule"], row["target"]) not in shadows:
        return None
    if attempt is not None and attempt["sent"]:
        code = attempt["code"]
        if code is not None:
            return None if 200 <= code < 300 else f"HTTP {code}"
        return attempt["error_class"] and str(attempt["error_class"])
    return str(row["reason"]) if row["reason"] in (SHADOW_FAILED, SHADOW_NOT_SENT) else None


def _as_shadow(step: Step, failed: str | None) -> Step:
    """Return the step or, if `failed` says why a shadow failed, the step with the outcome `shadow`."""
    return step if failed is None else replace(step, outcome="shadow")
