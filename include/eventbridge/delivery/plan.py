"""Plans the work for each target of a chunk: one run, a run per shard of an ordered target, or only outcome rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial

from eventbridge.config.connection import Connection, RemembersConnections
from eventbridge.delivery.admission import Pace, Pause, RunBreaker, admission, must_wind_down
from eventbridge.delivery.by_block import Block, BlockDeliveries, LiveBlocks, blocks_of
from eventbridge.delivery.by_queue import queue_deliveries
from eventbridge.delivery.by_span import SpanDeliveries, spans_of
from eventbridge.delivery.live import LiveDeliveries, LiveQueue
from eventbridge.delivery.ordered_runs import ordered_deliveries
from eventbridge.delivery.outstanding import Item, ReadPiece, items_of
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows, unsent_row
from eventbridge.delivery.run import Deliveries, RunSettings, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.model.outcome import DeadLettered
from eventbridge.model.redelivery import Redrive, Replay
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.breaker import Admission, pause_of
from eventbridge.policy.delivery_windows import dead_letter_if_late, missed
from eventbridge.policy.response_to_outcome import expired, too_early
from eventbridge.rules import Target as TargetRule
from eventbridge.rules.model import DeliverBetween, StatusRules
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.queue.fields import PullQueueFields


@dataclass(frozen=True)
class ChunkRuns:
    """Creates the runs of a chunk from the pieces in `read`; outcomes that are decided without a run are added to
    `rows`.

    `live` is given for an open batch. A target that has a queue in `live` gets a live run, which delivers from the
    queue, unless its status requires another kind of run. If a normal batch is planned without `live`, the next batch
    waits for the runs, which must therefore detect a slow target.
    """

    runtime: Runtime
    batch: Batch
    chunk: Chunk
    read: Sequence[ReadPiece]
    until: datetime
    stop: Stop
    rows: OutcomeRows
    live: Mapping[tuple[str, str], LiveQueue] | None = None

    def plan_runs(self, done: Mapping[bytes, BestOutcome]) -> list[TargetRun]:
        """Return the runs, not yet started, for those deliveries of the chunk that are not `done`."""
        by_target: dict[tuple[str, str], list[ReadPiece]] = defaultdict(list)
        for each in self.read:
            by_target[each.piece.rule, each.piece.target].append(each)
        statuses = self.runtime.ledger.targets.statuses()
        rules = self.runtime.rules_of(self.batch).rules
        runs: list[TargetRun] = []
        for (rule, target), found in by_target.items():
            spec = rules[rule].destinations.get(target) if rule in rules else None
            on_hold = bool(self.overrides.hold_reason(rule, target)) or (rule in rules and not rules[rule].enabled)
            if spec is not None:
                runs += _TargetPlan(self, rule, spec, statuses.get((rule, target)), found, done).runs(on_hold=on_hold)
            elif not on_hold:
                removed = DeadLettered("rule_removed", f"no rule file defines {rule}/{target} any more")
                self.dead_letter(items_in(found, done), removed)
        return runs

    def dead_letter(self, items: Iterable[Item], end: DeadLettered) -> None:
        """Add rows that dead-letter deliveries without an attempt."""
        now = self.runtime.clock()
        self.rows.put_all(unsent_row(item, end, now) for item in items)

    @cached_property
    def overrides(self) -> OperatorOverrides:
        """The overrides that operators have set."""
        return self.runtime.ledger.overrides.get_effective()

    @cached_property
    def connections(self) -> SharedConnections:
        """The connections of the targets, read once per push."""
        return SharedConnections(self.runtime.connections)

    @cached_property
    def redelivery_limit(self) -> tuple[str, float] | None:
        """The id and the rate of the redrive or replay that the batch belongs to; None if there is none or it has no
        rate."""
        ledger = self.runtime.ledger
        found: Redrive | Replay | None = None
        if self.batch.kind == "redrive":
            taken = ledger.redrives.list_taken_by(self.batch.batch_id)
            found = ledger.redrives.get(taken[0].redrive_id) if taken else None
        elif self.batch.kind == "replay":
            found = ledger.replays.get(self.batch.replay_id)
        if found is None or found.rate is None:
            return None
        return found.redrive_id if isinstance(found, Redrive) else found.replay_id, found.rate

    def redrive_pace(self) -> Pace | None:
        """Return the pace of the batch's redrive or replay; None if there is none or it has no rate.

        The ledger keeps its tokens with those of targets, under an empty rule name.
        """
        if self.redelivery_limit is None:
            return None
        name, rate = self.redelivery_limit
        return Pace(partial(self.runtime.ledger.targets.lease_tokens, "", name), rate)


class _TargetPlan:
    """Plans the runs for one of a chunk's targets. The kind of the runs depends on the target, its status and the
    deliveries."""

    def __init__(
        self,
        chunk_runs: ChunkRuns,
        rule: str,
        spec: TargetRule,
        status: TargetStatus | None,
        found: Sequence[ReadPiece],
        done: Mapping[bytes, BestOutcome],
    ) -> None:
        self._chunk_runs = chunk_runs
        self._runtime, self._batch = chunk_runs.runtime, chunk_runs.batch
        self._rule, self._spec = rule, spec
        # deliveries that were pending before the target became a shadow are ordinary deliveries
        self._is_shadow = spec.shadow_of is not None and self._batch.has_route_stage
        self._status = None if self._is_shadow else status
        self._found, self._done = found, done
        self._queue = chunk_runs.live.get((rule, spec.name)) if chunk_runs.live is not None else None

    def runs(self, *, on_hold: bool) -> Sequence[TargetRun]:
        """Return the runs, and add the rows of deliveries whose outcome is decided without a run.

        If `on_hold`, only deliveries that are too late get an outcome; settlement puts the others on hold.
        """
        if on_hold:
            self._drop_late(self._items(), in_order=False)
            return []
        runs = self._plan_by_kind()
        pause = Pause()
        if (until := pause_of(self._status, self._runtime.clock())) is not None:
            pause.ask(until)
        for run in runs:
            run.limit(pause, self._chunk_runs.redrive_pace())
        return runs

    @cached_property
    def _admitted(self) -> Admission:
        """The admission, which says what may be sent to the target. It is read only once, because reading it may claim
        the target's probe."""
        return admission(self._runtime, self._batch, self._status, self._chunk_runs.until)

    def _plan_by_kind(self) -> Sequence[TargetRun]:
        spec, queue = self._spec, self._queue
        if self._takes == "spans":
            return self._spans()
        if isinstance(spec, PullQueueFields):
            return self._queued(spec)
        if (blocks := self._blocks()) is not None:
            if queue is not None:
                return [self._run(LiveBlocks(queue), queue)]
            return [self._run(BlockDeliveries(blocks))] if blocks else []
        if queue is not None and isinstance(spec, HttpFields) and self._admitted == "all":
            return [self._run(LiveDeliveries(queue, spec.deliver_within_seconds), queue)]
        in_order = spec.ordered and (self._status is None or self._status.state != "disabled")
        items = self._drop_late(self._items(), in_order=in_order)
        if not in_order:
            return self._unordered(items)
        without_key = [item for item in items if item.request.order_key is None]
        return [*self._plan_ordered(), *self._unordered(without_key)]

    def _spans(self) -> Sequence[TargetRun]:
        spans = spans_of(self._found, self._done)
        if not spans or self._admitted == "none":
            return []  # they get no outcome: settlement makes them pending or puts them on hold
        return [self._run(SpanDeliveries(spans))]

    def _queued(self, spec: PullQueueFields) -> Sequence[TargetRun]:
        pieces = [each.piece for each in self._found]
        chunk = self._chunk_runs.chunk
        return [self._run(queue_deliveries(self._runtime, self._batch, chunk, spec, pieces, self._items(), self._done))]

    def _unordered(self, items: list[Item]) -> Sequence[TargetRun]:
        if not items:
            return []
        if self._admitted == "none":
            # deliveries that are not expired get no outcome, so settlement makes them pending or puts them on hold
            self._dead_letter_expired(items)
        elif ready := defer_early(items, self._spec.deliver_between, self._runtime.clock(), self._chunk_runs.rows):
            return [self._run(SingleDeliveries(ready))]
        return []

    def _plan_ordered(self) -> Iterator[TargetRun]:
        status, batch, spec = self._status, self._batch, self._spec
        if status is not None and must_wind_down(status, batch, self._runtime.ledger.now()):
            return
        pieces = [each.piece for each in self._found]
        for deliveries in ordered_deliveries(self._runtime, batch, self._chunk_runs.chunk, pieces, self._done, spec):
            settings = self._settings(self._breaker(opens=False), None)
            yield TargetRun(replace(settings, follows_others=False), deliveries)

    def _items(self) -> list[Item]:
        return items_in(self._found, self._done, self._spec.deliver_within_seconds)

    def _drop_late(self, items: list[Item], *, in_order: bool) -> list[Item]:
        """Dead-letter the items that are too late, and return the others; with `in_order`, all items with an order key
        are returned, because they must wait their turn."""
        if self._spec.deliver_within_seconds is None:
            return items
        now, kept = self._runtime.clock(), []
        for item in items:
            waits_its_turn = in_order and item.request.order_key is not None
            if not waits_its_turn and (end := missed(item.deadline_at, now)) is not None:
                self._chunk_runs.dead_letter([item], end)
            else:
                kept.append(item)
        return kept

    def _blocks(self) -> list[Block] | None:
        """Return the deliveries as blocks; None if they must be sent or decided individually."""
        spec, status = self._spec, self._status
        if self._done or self._takes != "blocks":
            return None
        if spec.ordered or spec.deliver_between is not None or spec.deliver_within_seconds is not None:
            return None
        if self._rate is not None or self._chunk_runs.redelivery_limit is not None:
            return None
        ramped = status is not None and status.until is not None and status.until > self._runtime.clock()
        if ramped or (status is not None and status.state != "ok"):
            return None
        blocks: list[Block] = []
        for each in self._found:
            of_piece = blocks_of(each)
            if of_piece is None:
                return None
            blocks += of_piece
        return blocks

    @property
    def _takes(self) -> str:
        return TARGET_TYPES.get_in_force(self._spec.type).takes_of(self._spec)

    @property
    def _rate(self) -> float | None:
        return self._chunk_runs.overrides.rate(self._rule, self._spec.name, self._spec.rate_per_second)

    def _run(self, deliveries: Deliveries, queue: LiveQueue | None = None) -> TargetRun:
        status, probes = self._status, self._admitted == "probes"
        breaker = self._breaker(opens=not self._is_shadow, probed=status if probes else None)
        ramp_until = status.until if status is not None and not probes else None
        return TargetRun(self._settings(breaker, ramp_until), deliveries, queue)

    def _breaker(self, *, opens: bool, probed: TargetStatus | None = None) -> RunBreaker:
        return RunBreaker(
            self._rule,
            self._spec.name,
            probed=probed,
            disable_after_seconds=self._spec.disable_after_seconds,
            opens=opens,
            # without a live run, the next batch waits for this run, which must therefore detect a slow target
            judges_speed=self._chunk_runs.live is None and self._batch.kind == "normal" and not self._is_shadow,
        )

    def _settings(self, breaker: RunBreaker, ramp_until: datetime | None) -> RunSettings:
        runtime, rule, spec = self._runtime, self._rule, self._spec
        connections = self._chunk_runs.connections
        return RunSettings(
            rule,
            spec.name,
            open_target=partial(runtime.open_target, rule, spec.with_rate(self._rate), connections.connection_reader()),
            opens_at_once=partial(connections.knows, *_connections_of(spec)),
            policy=spec.retry,
            breaker=breaker,
            pace=Pace(partial(runtime.ledger.targets.lease_tokens, rule, spec.name), self._rate, ramp_until),
            until=self._chunk_runs.until,
            clock=runtime.clock,
            stop=self._chunk_runs.stop,
            rows=self._chunk_runs.rows,
            window=spec.deliver_between,
            slow_lane=self._batch.kind != "normal",
            uses_transfer_slot=isinstance(spec, HttpFields),
            shadow=self._is_shadow,
            timeout_seconds=spec.timeout_seconds,
            in_flight=_max_in_flight(spec),
            rate_of_file=spec.rate_per_second,
            retry_after_max=timedelta(seconds=runtime.settings.retry_after_max_delay),
            statuses=spec.statuses if isinstance(spec, HttpFields) else StatusRules(),
        )

    def _dead_letter_expired(self, items: Iterable[Item]) -> None:
        now = self._runtime.clock()
        for item in items:
            end = expired(self._spec.retry, item.arrived_at, item.on_hold_seconds, now)
            if end is not None:
                self._chunk_runs.dead_letter([item], end)


def items_in(
    pieces: Iterable[ReadPiece], done: Mapping[bytes, BestOutcome], within_seconds: float | None = None
) -> list[Item]:
    """Return the deliveries of pieces as items, without those that are `done`."""
    return [item for each in pieces for item in items_of(each.each(), each.piece, done, each.first, within_seconds)]


def _connections_of(spec: TargetRule) -> list[str]:
    """Return the connections that opening a target reads, those of http targets only."""
    found = (spec.connection, spec.proxy) if isinstance(spec, HttpFields) else ()
    return [each for each in found if each is not None]


def _max_in_flight(spec: TargetRule) -> int:
    """Return how many deliveries of a target may be in flight at a time."""
    is_plug_in = TARGET_TYPES.plug_in(spec.type) is not None  # which makes one call at a time
    if is_plug_in or TARGET_TYPES.get_in_force(spec.type).takes_of(spec) == "spans":
        return 1
    together = spec.batch.count if isinstance(spec, HttpFields) and spec.batch is not None else 1
    return spec.max_in_flight * together


def defer_early(
    items: Iterable[Item],
    window: DeliverBetween | None,
    now: datetime,
    rows: OutcomeRows,
) -> list[Item]:
    """Return those deliveries of a target that may be sent now, and add rows of the OUTCOME schema for the others.

    Such a row is not an attempt. Its status is `retry_scheduled`, with the earliest time at which the delivery may be
    sent, or `dead_lettered` if that time is not before its deadline.
    """
    ready, early = [], []
    for item in items:
        due = too_early(item.not_before, window, now)
        if due is None:
            ready.append(item)
        else:
            early.append(unsent_row(item, dead_letter_if_late(due, item.deadline_at), now))
    rows.put_all(early)
    return ready


class SharedConnections:
    """Reads each connection once for all targets of a push, and again for a target that was refused; any thread may use
    it."""

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        # a target whose connection was refused reads it again, bypassing the cache, which would return the refused one
        self._read_again = read.read_again if isinstance(read, RemembersConnections) else read
        self._known: dict[str, Connection] = {}

    def knows(self, *connection_ids: str) -> bool:
        """Return whether the connections of a target have already been read."""
        return all(each in self._known for each in connection_ids)

    def connection_reader(self) -> Callable[[str], Connection]:
        """Return the function with which a target reads its connection: the shared one on the first call, the current
        one on later calls."""
        asked: set[str] = set()

        def connection(connection_id: str) -> Connection:
            if connection_id in asked:
                self._known[connection_id] = self._read_again(connection_id)
            elif connection_id not in self._known:
                self._known[connection_id] = self._read(connection_id)
            asked.add(connection_id)
            return self._known[connection_id]

        return connection
