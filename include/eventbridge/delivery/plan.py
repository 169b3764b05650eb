"""Plans the work of a push for each target of its chunk: one run, the runs of an ordered target, or only rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial

from eventbridge.config.connection import Connection, RemembersConnections
from eventbridge.delivery.admission import Pace, Pause, RunBreaker, admission, must_wind_down
from eventbridge.delivery.by_block import Block, BlockDeliveries, LiveBlocks, blocks_of
from eventbridge.delivery.by_span import Span, SpanDeliveries, spans_of
from eventbridge.delivery.live import LiveDeliveries, LiveQueue
from eventbridge.delivery.ordered_runs import ordered_deliveries
from eventbridge.delivery.outstanding import Item, ReadPiece, items_of
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows, unsent_row
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.outcome import DeadLettered
from eventbridge.model.redelivery import Redrive, Replay
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.breaker import pause_of
from eventbridge.policy.delivery_windows import in_time, missed
from eventbridge.policy.response_to_outcome import expired, too_early
from eventbridge.rules import Target as TargetRule
from eventbridge.rules.model import DeliverBetween
from eventbridge.rules.types import TARGET_TYPES
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.fields import HttpFields


@dataclass(frozen=True)
class ChunkRuns:
    """Makes the runs of a chunk from the pieces in `read`; rows decided without a run go to `rows`.

    `live` is given for an open batch: a target that has a queue there and is ok gets a live run, which delivers what is
    in the queue. Of a chunk, the next batch waits for the runs, so that they must find out a slow target.
    """

    runtime: Runtime
    batch: Batch
    chunk: Chunk
    read: Sequence[ReadPiece]
    until: datetime
    stop: Stop
    rows: OutcomeRows
    live: Mapping[tuple[str, str], LiveQueue] | None = None

    def of(self, done: Mapping[bytes, BestOutcome]) -> list[TargetRun]:
        """Return the runs, not started, for the deliveries of the chunk that are not `done`."""
        by_target: dict[tuple[str, str], list[ReadPiece]] = defaultdict(list)
        for each in self.read:
            by_target[each.piece.rule, each.piece.target].append(each)
        statuses = self.runtime.ledger.targets.statuses()
        rules = self.runtime.rules_of(self.batch).rules
        runs: list[TargetRun] = []
        for (rule, target), found in by_target.items():
            spec = rules[rule].destinations.get(target) if rule in rules else None
            status = None if self._is_shadow(spec) else statuses.get((rule, target))
            if self._overrides.hold_reason(rule, target) or (rule in rules and not rules[rule].enabled):
                if spec is not None:
                    self._in_time(self._items(spec, found, done), spec, in_order=False)
                continue  # without an outcome: settlement puts it on hold
            of_target = self._runs_of_target(rule, target, spec, status, found, done)
            pause = Pause()
            if (until := pause_of(status, self.runtime.clock())) is not None:
                pause.ask(until)
            for run in of_target:
                run.limit(pause, self._redrive_pace())
            runs += of_target
        return runs

    def _is_shadow(self, spec: TargetRule | None) -> bool:
        """Return whether a target is a shadow; deliveries that were pending while it was not are treated as any."""
        return spec is not None and spec.shadow_of is not None and self.batch.routes

    @property
    def _judges_speed(self) -> bool:
        return self.live is None and self.batch.kind == "normal"

    @cached_property
    def _overrides(self) -> OperatorOverrides:
        return self.runtime.ledger.overrides.in_effect()

    @cached_property
    def _connections(self) -> SharedConnections:
        return SharedConnections(self.runtime.connections)

    @cached_property
    def _limited(self) -> tuple[str, float] | None:
        """The redrive or replay that the batch belongs to, and its rate, if it has one."""
        ledger = self.runtime.ledger
        found: Redrive | Replay | None = None
        if self.batch.kind == "redrive":
            taken = ledger.redrives.taken_by(self.batch.batch_id)
            found = ledger.redrives.get(taken[0].redrive_id) if taken else None
        elif self.batch.kind == "replay":
            found = ledger.replays.get(self.batch.replay_id)
        if found is None or found.rate is None:
            return None
        return found.redrive_id if isinstance(found, Redrive) else found.replay_id, found.rate

    def _redrive_pace(self) -> Pace | None:
        """Return the pace of the redrive; its tokens are kept beside those of targets, under an empty rule name."""
        if self._limited is None:
            return None
        name, rate = self._limited
        return Pace(partial(self.runtime.ledger.targets.lease_tokens, "", name), rate)

    def _runs_of_target(
        self,
        rule: str,
        target: str,
        spec: TargetRule | None,
        status: TargetStatus | None,
        found: Sequence[ReadPiece],
        done: Mapping[bytes, BestOutcome],
    ) -> Sequence[TargetRun]:
        if spec is not None and TARGET_TYPES.get(spec.type).takes(spec) == "spans":
            return self._spans(rule, spec, status, spans_of(found, done))
        blocks = self._blocks(rule, spec, status, found) if not done else None
        queue = self.live.get((rule, target)) if self.live is not None else None
        if blocks is not None:
            assert spec is not None, "without it there are no blocks"
            if queue is not None:
                return [TargetRun(self._settings(rule, spec, status), LiveBlocks(queue), queue)]
            return [TargetRun(self._settings(rule, spec, status), BlockDeliveries(blocks))] if blocks else []
        if (
            queue is not None
            and isinstance(spec, HttpFields)
            and admission(self.runtime, self.batch, status, self.until) == "all"
        ):
            live = LiveDeliveries(queue, spec.deliver_within_seconds)
            return [TargetRun(self._settings(rule, spec, status), live, queue)]
        in_order = spec is not None and spec.ordered and (status is None or status.state != "disabled")
        items = self._in_time(self._items(spec, found, done), spec, in_order=in_order)
        runs: list[TargetRun] = []
        if spec is not None and in_order:
            items = [item for item in items if item.request.order_key is None]
            if status is None or not must_wind_down(status, self.batch, self.runtime.ledger.now()):
                runs += self._ordered(rule, spec, [each.piece for each in found], done)
        if items:
            runs += self._unordered((rule, target), spec, status, items)
        return runs

    def _unordered(
        self, key: tuple[str, str], spec: TargetRule | None, status: TargetStatus | None, items: list[Item]
    ) -> Sequence[TargetRun]:
        rule, target = key
        if spec is None:
            self._dead_letter(items, DeadLettered("rule_removed", f"no rule file names {rule}/{target} any more"))
            return []
        admitted = admission(self.runtime, self.batch, status, self.until)
        if admitted == "none":
            # the rest keeps no outcome: settlement makes it pending, or holds it
            self._dead_letter_expired(items, spec)
        elif ready := defer_early(items, spec.deliver_between, self.runtime.clock(), self.rows):
            settings = self._settings(rule, spec, status, probing=admitted == "probes")
            return [TargetRun(settings, SingleDeliveries(ready))]
        return []

    def _spans(
        self, rule: str, spec: TargetRule, status: TargetStatus | None, spans: Sequence[Span]
    ) -> Sequence[TargetRun]:
        admitted = admission(self.runtime, self.batch, status, self.until) if spans else "none"
        if admitted == "none":  # they keep no outcome: settlement makes them pending, or holds them, until they expire
            return []
        settings = self._settings(rule, spec, status, probing=admitted == "probes")
        return [TargetRun(settings, SpanDeliveries(spans))]

    def _items(
        self, spec: TargetRule | None, found: Iterable[ReadPiece], done: Mapping[bytes, BestOutcome]
    ) -> list[Item]:
        within = spec.deliver_within_seconds if spec is not None else None
        return [item for each in found for item in items_of(each.each(), each.piece, done, each.first, within)]

    def _in_time(self, items: list[Item], spec: TargetRule | None, *, in_order: bool) -> list[Item]:
        """Return the items that are not too late, and dead-letter the others; items `in_order` wait for their turn."""
        if spec is None or spec.deliver_within_seconds is None:
            return items
        now, kept = self.runtime.clock(), []
        for item in items:
            waits_its_turn = in_order and item.request.order_key is not None
            if not waits_its_turn and (end := missed(item.deadline_at, now)) is not None:
                self._dead_letter([item], end)
            else:
                kept.append(item)
        return kept

    def _blocks(
        self, rule: str, spec: TargetRule | None, status: TargetStatus | None, found: Iterable[ReadPiece]
    ) -> list[Block] | None:
        """Return the deliveries of a target as blocks; None if each must be handled, or sent, by itself."""
        if spec is None or spec.ordered or spec.deliver_between is not None or spec.deliver_within_seconds is not None:
            return None
        if self._overrides.rate(rule, spec.name, spec.rate_per_second) is not None:
            return None
        if self._limited is not None or TARGET_TYPES.get(spec.type).takes(spec) != "blocks":
            return None
        ramped = status is not None and status.until is not None and status.until > self.runtime.clock()
        if ramped or (status is not None and status.state != "ok"):
            return None
        blocks: list[Block] = []
        for each in found:
            of_piece = blocks_of(each)
            if of_piece is None:
                return None
            blocks += of_piece
        return blocks

    def _ordered(
        self,
        rule: str,
        spec: TargetRule,
        pieces: Sequence[Piece],
        done: Mapping[bytes, BestOutcome],
    ) -> Iterator[TargetRun]:
        for deliveries in ordered_deliveries(self.runtime, self.batch, self.chunk, pieces, done, spec):
            settings = self._settings(rule, spec, None)
            breaker = RunBreaker(
                rule,
                spec.name,
                disable_after_seconds=spec.disable_after_seconds,
                opens=False,
                judges_speed=self._judges_speed and not self._is_shadow(spec),
            )
            yield TargetRun(replace(settings, breaker=breaker, follows_others=False), deliveries)

    def _settings(
        self, rule: str, spec: TargetRule, status: TargetStatus | None, *, probing: bool = False
    ) -> RunSettings:
        """Return the settings of a run."""
        ramp_until = status.until if status is not None and not probing else None
        return RunSettings(
            rule,
            spec.name,
            open_target=partial(self.runtime.open_target, rule, spec, self._connections.for_target()),
            opens_at_once=partial(self._connections.knows, spec.connection if isinstance(spec, HttpFields) else None),
            policy=spec.retry,
            breaker=RunBreaker(
                rule,
                spec.name,
                probed=status if probing else None,
                disable_after_seconds=spec.disable_after_seconds,
                opens=not self._is_shadow(spec),
                judges_speed=self._judges_speed and not self._is_shadow(spec),
            ),
            pace=Pace(
                partial(self.runtime.ledger.targets.lease_tokens, rule, spec.name),
                self._overrides.rate(rule, spec.name, spec.rate_per_second),
                ramp_until,
            ),
            until=self.until,
            clock=self.runtime.clock,
            stop=self.stop,
            rows=self.rows,
            window=spec.deliver_between,
            slow_lane=self.batch.kind != "normal",
            uses_transfer_slot=isinstance(spec, HttpFields),
            shadow=self._is_shadow(spec),
            timeout_seconds=spec.timeout_seconds,
            in_flight=_in_flight(spec),
            rate_of_file=spec.rate_per_second,
            retry_after_max=timedelta(seconds=self.runtime.settings.retry_after_max_delay),
        )

    def _dead_letter(self, items: Iterable[Item], outcome: DeadLettered) -> None:
        now = self.runtime.clock()
        self.rows.put_all(unsent_row(item, outcome, now) for item in items)

    def _dead_letter_expired(self, items: Iterable[Item], spec: TargetRule) -> None:
        now = self.runtime.clock()
        for item in items:
            outcome = expired(spec.retry, item.arrived_at, item.on_hold_seconds, now)
            if outcome is not None:
                self._dead_letter([item], outcome)


def _in_flight(spec: TargetRule) -> int:
    """Return how many deliveries of a target may be in flight at a time."""
    if TARGET_TYPES.get(spec.type).takes(spec) in ("blocks", "spans"):
        return 1
    together = spec.batch.count if isinstance(spec, HttpFields) and spec.batch is not None else 1
    return spec.max_in_flight * together


def defer_early(
    items: Iterable[Item],
    window: DeliverBetween | None,
    now: datetime,
    rows: OutcomeRows,
) -> list[Item]:
    """Return the deliveries of a target that may be sent now; rows of schema OUTCOME for the others go to `rows`.

    Such a row is not an attempt: it is a retry_scheduled with the time from which the delivery may be sent, or a
    dead_lettered if that is after its deadline.
    """
    ready, early = [], []
    for item in items:
        due = too_early(item.not_before, window, now)
        if due is None:
            ready.append(item)
        else:
            early.append(unsent_row(item, in_time(due, item.deadline_at), now))
    rows.put_all(early)
    return ready


class SharedConnections:
    """Reads connections for the targets of one push; any thread may ask."""

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        # a target reads again after a refusal: a remembered connection would be refused once more
        self._read_again = read.read_again if isinstance(read, RemembersConnections) else read
        self._known: dict[str, Connection] = {}

    def knows(self, connection_id: str | None) -> bool:
        """Return whether the connection of a target needs no reading."""
        return connection_id is None or connection_id in self._known

    def for_target(self) -> Callable[[str], Connection]:
        """Return the function by which a target reads its connection: first the shared one, later the current one."""
        asked: set[str] = set()

        def connection(connection_id: str) -> Connection:
            if connection_id in asked:
                self._known[connection_id] = self._read_again(connection_id)
            elif connection_id not in self._known:
                self._known[connection_id] = self._read(connection_id)
            asked.add(connection_id)
            return self._known[connection_id]

        return connection
