"""Plans batches of the kind `replay`, which redeliver the archived events that a request chooses.

The DAG `eventbridge_replay_events` and `eventbridge replays start` call this module; the other stages then run as for
any batch. A batch begins at the route stage. Its buffer file holds the events as they were archived, but their age is
measured from the time at which the batch was planned.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model import rowset
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import REPLAY_LANE_POOL
from eventbridge.model.redelivery import Replay, Replayed, ReplayPart, ReplayPosition
from eventbridge.pipeline.ingest.ingestion_stop import RECHECK_SECONDS, is_ingestion_stopped
from eventbridge.policy.batch_size import MAX_BYTES_IN_MEMORY, MAX_EVENTS_IN_MEMORY
from eventbridge.policy.chunking import PoolSlots
from eventbridge.replay.archive import files_from
from eventbridge.replay.choose import Chooser
from eventbridge.replay.request import ReplayRequest, refuse_unknown_original, restricted
from eventbridge.rules import RuleSet
from eventbridge.runtime.identity import refuse_lost_ledger
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import refuse_pruned
from eventbridge.runtime.visibility import check_seen
from eventbridge.store import layout, schemas
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.rule_sets import freeze_rules, frozen_rules
from eventbridge.store.schemas import ROW_GROUP_ROWS

#: If a replay has a rate, a batch has at most the events that the rate allows in this time, or in half of a push's
#: timeout if that is less, on the assumption that every event goes to every target. Its pushes take a token for each
#: delivery. The next batch is planned no sooner than the rate allows as many deliveries as this batch has events.
_RATE_WINDOW_SECONDS = 10.0

#: A step ends after reading this many events, so that the position is recorded even if a pattern matches few events.
_READ_AT_ONCE = 500_000

#: The time that a replay waits before it checks again whether its pool has slots.
_CLOSED_SECONDS = 5.0
_KEY = "replay"
_ORDER = [(name, "ascending") for name in ("topic", "broker", "partition_id", "offset")]


@dataclass(frozen=True)
class ReplayPlan:
    """The batch that was planned or is continued.

    If `batch_id` is None, no batch is planned before `wait_until`; if both are None, the replay has ended. A paused
    replay counts as ended.
    """

    batch_id: str | None = None
    wait_until: datetime | None = None


def begin_replay(runtime: Runtime, request: ReplayRequest, run: str) -> Replay:
    """Record a replay and return it; if `run` already has one, return that one and ignore the request.

    If the current rules apply, they are frozen now, for all batches of the replay. A replay takes only events of
    batches that are already committed, because the events of a batch in progress are still being delivered. Raises the
    same errors as `build_replay`.
    """
    begun = runtime.ledger.replays.find_for_run(run)
    if begun is not None:
        return begun
    return record_replay(runtime, request, build_replay(runtime, request, run, runtime.ledger.now()))


def build_replay(runtime: Runtime, request: ReplayRequest, run: str, now: datetime) -> Replay:
    """Return the replay of a request, without recording it.

    The rules that it needs are frozen in the store. Raises UserError if no current rule is selected, if part of the
    archive is past its retention, and if a caller who is limited to owners does not name rules that they may see.
    """
    check_seen(runtime, request.rules)
    _refuse_pruned_request(runtime, request)
    parts = (
        _parts_of_current(runtime, request, now)
        if request.as_of == "current"
        else _parts_of_original(runtime, request, now)
    )
    if not parts and request.as_of == "current":
        raise UserError(f"no enabled rule of bus {request.bus!r} is selected: there is nothing to replay")
    return Replay(
        replay_id=str(uuid.uuid4()),
        run=run,
        bus=request.bus,
        since=request.since,
        until=request.until,
        selection=request.as_json(),
        parts=tuple(parts),
        started_at=now,
        next_at=now,
        rate=request.rate,
        new_ids=request.new_ids,
        skip_delivered=request.skip_delivered,
    )


@instrumented("plan_replay", of="")
def plan_replay(runtime: Runtime, replay_id: str, pools: Mapping[str, PoolSlots] | None = None) -> ReplayPlan:
    """Plan the next batch of a replay, or return its unfinished one; at the end of the archive, end the replay.

    A batch belongs to one part of the replay. If two processes plan at the same time, one gets no batch, but a time to
    try again. Nothing is planned while the pool `eventbridge.replay` has no slots, or while ingestion is stopped.
    """
    refuse_lost_ledger(runtime)
    replay = runtime.ledger.replays.get(replay_id)
    now = runtime.ledger.now()
    unfinished = runtime.ledger.replays.open_batches(replay_id)
    if unfinished:
        # After the deadline of a routed batch no push sends its deliveries. `settle_stale` settles the batch.
        open_until = unfinished[0].deadline_at
        if unfinished[0].state == "routed" and open_until is not None and open_until <= now:
            return ReplayPlan(wait_until=now + timedelta(seconds=1))
        return ReplayPlan(unfinished[0].batch_id)
    if replay.state != "running":
        return ReplayPlan()
    if replay.next_at > now:
        return ReplayPlan(wait_until=replay.next_at)
    lane = (pools or {}).get(REPLAY_LANE_POOL)
    if lane is not None and lane.slots == 0:
        return _deferred(runtime, replay_id, now + timedelta(seconds=_CLOSED_SECONDS))
    if replay.position.part >= len(replay.parts):
        runtime.ledger.replays.end(replay_id, "done")
        return ReplayPlan()
    if is_ingestion_stopped(runtime, again=logging.INFO):
        return _deferred(runtime, replay_id, now + timedelta(seconds=RECHECK_SECONDS))
    return _ReplayStep(runtime, replay, now).take()


def _deferred(runtime: Runtime, replay_id: str, until: datetime) -> ReplayPlan:
    runtime.ledger.replays.defer(replay_id, until)
    return ReplayPlan(wait_until=until)


class _ReplayStep:
    """One step of a replay through the archive: reads rows, and plans a batch of the events that it takes from them."""

    def __init__(self, runtime: Runtime, replay: Replay, now: datetime) -> None:
        self._runtime = runtime
        self._replay = replay
        self._now = now
        self._part = replay.parts[replay.position.part]
        self._rule_set = self._part.rule_set  # if the part has none, the first file that is read sets it
        self._batch_id = new_batch_id(now)
        self._tables: list[pa.Table] = []
        self._taken: list[Replayed] = []
        self._count = self._size = self._rows_read = 0
        self._position = replay.position

    def take(self) -> ReplayPlan:
        """Read the archive until the batch is full, the part ends or enough rows are read; plan a batch of the events.

        If no event was taken, the plan has no batch, and the next step may follow immediately.
        """
        ended = self._read_archive()
        if ended:
            self._position = ReplayPosition(part=self._replay.position.part + 1)
        batch = self._batch() if self._count else None
        taken = [each if each.count else _clear_batch(each) for each in self._taken]
        next_at = self._now
        if self._replay.rate is not None and self._count:
            next_at += timedelta(seconds=self._count / self._replay.rate)
        file = None if batch is None else write_events(self._runtime, batch, self._tables)
        moved = self._runtime.ledger.replays.move(self._replay, self._position, next_at, taken, batch, file)
        if not moved or batch is None:
            return ReplayPlan(wait_until=self._now)
        return ReplayPlan(batch.batch_id)

    def _read_archive(self) -> bool:
        """Take events until the batch is full, the part ends or enough rows are read; return whether the part ended.

        In a part without a rule set, a file whose rule set differs from that of the first file also ends the batch.
        """
        chooser = Chooser(self._runtime, self._replay, self._part)
        for found, first in files_from(self._runtime, self._replay, self._replay.position):
            file = found[0]
            if not self._part.rule_set:
                if self._count and file.rule_set != self._rule_set:
                    return False
                self._rule_set = file.rule_set
            events, rows = chooser.events(found, first)
            if not self._rules().rules:  # the rule set of that time had none of the rules
                events, rows = events.slice(0, 0), rows[:0]
            most = self._fitting_rows(events)
            if most < len(rows):
                events, rows = events.slice(0, most), rows[:most]
                end = int(rows[-1]) + 1 if most else first
            else:
                end = file.rows
            if end > first:
                self._add_rows(file.path, first, end, events, rows)
                at = file.planned_at.isoformat()
                self._position = ReplayPosition(self._replay.position.part, file.path, end, at)
            if end < file.rows or self._count >= self._max_events or self._size >= self._max_bytes:
                return False
            self._rows_read += file.rows - first
            if self._rows_read >= _READ_AT_ONCE:
                return False
        return True

    def _add_rows(self, path: str, first: int, end: int, events: pa.Table, rows: npt.NDArray[np.int64]) -> None:
        count = len(rows)
        if count:
            self._tables.append(events)
            self._count += count
            self._size += int(pc.sum(pc.binary_length(events["body"])).as_py())
        self._taken.append(
            Replayed(
                replay_id=self._replay.replay_id,
                sequence=self._replay.sequence,
                file=path,
                part=self._replay.position.part,
                first_row=first,
                end_row=end,
                rows=rowset.encode(rows.tolist()),
                count=count,
                batch_id=self._batch_id,
            )
        )

    def _fitting_rows(self, events: pa.Table) -> int:
        """Return how many of these events still fit into the batch; one event always fits into an empty batch."""
        free_bytes = self._max_bytes - self._size
        sizes = np.cumsum(pc.binary_length(events["body"]).to_numpy().astype(np.int64))
        by_size = int(np.searchsorted(sizes, free_bytes, side="right"))
        return int(max(min(by_size, self._max_events - self._count, events.num_rows), 0 if self._count else 1))

    @property
    def _max_bytes(self) -> int:
        return min(self._runtime.settings.batch_max_size, MAX_BYTES_IN_MEMORY)

    @property
    def _max_events(self) -> int:
        settings = self._runtime.settings
        handed_out: int = self._runtime.chunk_sizes.small.deliveries * settings.batch_max_chunks
        most = min(settings.batch_max_events, MAX_EVENTS_IN_MEMORY, handed_out)
        if self._replay.rate is None:
            return most
        seconds = min(_RATE_WINDOW_SECONDS, settings.push_timeout / 2)
        targets = sum(len(rule.targets) for rule in self._rules().rules.values())
        return max(1, min(most, int(self._replay.rate * seconds / max(1, targets))))

    def _rules(self) -> RuleSet:
        """Return the rules for routing the batch."""
        return rules_of_part(self._runtime, self._replay, self._part, self._rule_set)

    def _batch(self) -> Batch:
        return Batch(
            batch_id=self._batch_id,
            kind="replay",
            runner=self._part.runner,
            bus=self._replay.bus,
            state="buffered",
            rule_set=self._part.rule_set or freeze_rules(self._runtime.store, self._rules()),
            planned_at=self._now,
            replay_id=self._replay.replay_id,
        )


def rules_of_part(runtime: Runtime, replay: Replay, part: ReplayPart, rule_set: str) -> RuleSet:
    """Return the rules that route a part: its own or, if it has none, those of the archived batch, `rule_set`."""
    if part.rule_set:
        return frozen_rules(runtime.store, part.rule_set)
    chosen = replay.selection
    rules, targets = chosen.get("rules", ()), chosen.get("targets", ())
    if part.target:
        rules, targets = [part.rule], [part.target]
    return restricted(frozen_rules(runtime.store, rule_set), replay.bus, rules, targets)


def _clear_batch(searched: Replayed) -> Replayed:
    return Replayed(**vars(searched) | {"batch_id": None})


def _parts_of_current(runtime: Runtime, request: ReplayRequest, now: datetime) -> list[ReplayPart]:
    """Return a part for each runner of the current rules or, if events are chosen by outcome, for each target."""
    chosen = restricted(runtime.rule_set(), request.bus, request.rules, request.targets)
    landed = {runner for runner, _ in runtime.ledger.archive.rule_sets(request.bus, request.since, request.until, now)}
    parts = []
    for runner in sorted({rule.runner for rule in chosen.rules.values()}):
        rules, alone = chosen.for_runner(runner), landed <= {runner}
        if not request.by_target:
            parts.append(ReplayPart(runner, freeze_rules(runtime.store, rules), alone=alone))
            continue
        for name, rule in sorted(rules.rules.items()):
            for target in sorted(rule.targets):
                only = restricted(rules, request.bus, [name], [target])
                parts.append(ReplayPart(runner, freeze_rules(runtime.store, only), name, target, alone))
    return parts


def _parts_of_original(runtime: Runtime, request: ReplayRequest, now: datetime) -> list[ReplayPart]:
    """Return a part for each runner that landed the events or, if events are chosen by outcome, for each target."""
    found: dict[tuple[str, str, str], None] = {}
    frozen = runtime.ledger.archive.rule_sets(request.bus, request.since, request.until, now)
    refuse_unknown_original(request, [frozen_rules(runtime.store, rule_set) for _, rule_set in frozen])
    for runner, rule_set in frozen:
        rules = restricted(frozen_rules(runtime.store, rule_set), request.bus, request.rules, request.targets)
        if rules.rules and not request.by_target:
            found[runner, "", ""] = None
        elif request.by_target:
            pairs = ((runner, name, key) for name, each in rules.rules.items() for key in each.targets)
            found.update(dict.fromkeys(pairs))
    return [ReplayPart(runner, "", rule, target) for runner, rule, target in sorted(found)]


def request_name(run: str, times: int) -> str:
    """Return the name under which a run requests its replay after the run was cleared `times` times."""
    return f"{run} again {times}" if times else run


def requesting_run(name: str) -> str:
    """Return the run from which `request_name` made a name."""
    return re.sub(r" again [0-9]+$", "", name)


def begin_or_continue(runtime: Runtime, request: ReplayRequest, run: str, times: int) -> Replay:
    """Begin or continue the replay of a run that was cleared `times` times, and return it.

    If the run's last replay is paused (the run ran out of time, or an operator paused the replay) and the request is
    the same, that replay continues under its id. If the replay is still running, because the run was cleared while the
    replay was waiting, or if the request is a different one, the replay is cancelled and a new one begins. A new one
    also begins if the last replay has ended. A retry of the task returns the same replay. Raises the same errors as
    `begin_replay`.
    """
    name = request_name(run, times)
    begun = runtime.ledger.replays.find_for_run(name)
    if begun is not None:
        return begun
    before = _find_earlier(runtime, run, times)
    if before is not None and before.ended_at is None:
        if _is_the_same(before, request) and runtime.ledger.replays.hand_over(before.replay_id, name):
            return runtime.ledger.replays.get(before.replay_id)
        runtime.ledger.replays.end(before.replay_id, "cancelled")
    return begin_replay(runtime, request, name)


def _find_earlier(runtime: Runtime, run: str, times: int) -> Replay | None:
    for earlier in reversed(range(times)):
        found = runtime.ledger.replays.find_for_run(request_name(run, earlier))
        if found is not None:
            return found
    return None


def _is_the_same(replay: Replay, request: ReplayRequest) -> bool:
    asked = (
        request.bus,
        request.since,
        request.until,
        request.as_json(),
        request.rate,
        request.new_ids,
        request.skip_delivered,
    )
    had = (replay.bus, replay.since, replay.until, dict(replay.selection), replay.rate, replay.new_ids)
    return asked == (*had, replay.skip_delivered)


def _refuse_pruned_request(runtime: Runtime, request: ReplayRequest) -> None:
    """Raise UserError if the archive of requested batches, or their outcomes if they are needed, no longer exist."""
    refuse_pruned(runtime, request.bus, request.since, request.until, outcomes=request.by_target)


def record_replay(runtime: Runtime, request: ReplayRequest, replay: Replay) -> Replay:
    """Record a replay, or return the one that its run has already begun.

    Once the replay is recorded, `maintain` keeps its part of the archive. Raises UserError, and cancels the replay, if
    some of that was removed before.
    """
    recorded = runtime.ledger.replays.begin(replay)
    try:
        _refuse_pruned_request(runtime, request)
    except UserError:
        runtime.ledger.replays.end(recorded.replay_id, "cancelled")
        raise
    return recorded


def write_events(runtime: Runtime, batch: Batch, tables: Sequence[pa.Table]) -> BatchFile:
    """Write events, in bus order, as the buffer file of a batch; return its record."""
    events = pa.concat_tables(tables).sort_by(_ORDER)
    for name in ("published_at", "arrived_at"):
        column = schemas.BUFFER.get_field_index(name)
        times = pa.repeat(pa.scalar(batch.planned_at, schemas.BUFFER.field(column).type), events.num_rows)
        events = events.set_column(column, schemas.BUFFER.field(column), times)
    events = events.cast(schemas.BUFFER)
    path = layout.buffer(batch.bus, batch.planned_at, batch.batch_id, uuid.uuid4().hex)
    write_table(runtime.store, path, events, row_group_rows=ROW_GROUP_ROWS)
    return BatchFile(batch.batch_id, "buffer", _KEY, path, events.num_rows)


def is_replay_input(batch: Batch, file: BatchFile) -> bool:
    """Return whether a file is the input of a replay batch."""
    return batch.kind == "replay" and file.kind == "buffer" and file.key == _KEY


def rebuild(runtime: Runtime, batch: Batch) -> BatchFile:
    """Write the input of a replay batch again under another name, with the same rows from the same archive files."""
    taken = runtime.ledger.replays.list_taken_by(batch.batch_id)
    return write_events(
        runtime, batch, [read_rows(runtime.store, each.file, each.rows) for each in taken if each.count]
    )
