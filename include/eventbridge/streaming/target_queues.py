"""Delivers to the targets of an open batch. Each target has its own queue, so that none waits for another.

If a pool has fewer slots than targets, the targets take turns.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from eventbridge.delivery.engine import TargetRuns
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.live import LiveQueue, can_be_live
from eventbridge.delivery.outstanding import ReadPiece
from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.threads import THREADS_AT_ONCE, Threads
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.model.rule_state import OperatorOverrides
from eventbridge.pipeline.route.stage import overridden_lanes
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.streaming import QueuedTarget, bounding_slots, closed_pools, may_begin
from eventbridge.rules import RuleSet
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.fields import HttpFields

log = logging.getLogger(__name__)

#: The maximum number of live runs for targets that are not HTTP targets. Each such run keeps a thread until it ends.
_LIVE_THREADS = 32


class TargetQueues:
    """Delivers the pieces of one open batch as they are offered, to each target at its own pace.

    A target has one run at a time, even while the previous open batch `before` is waiting for its last responses. New
    pieces wait in the target's queue until the target's live run takes them; if there is no live run, the next run
    does. If a pool has fewer slots than targets, the targets take turns. All batches share the `http` loop, so that
    connections stay open. `engine` holds the runs and their outcomes, and `delivered` counts the deliveries of the runs
    that have ended. Only one thread at a time may use this object, except for `has`.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch: Batch,
        rules: RuleSet,
        http: HttpLoop,
        before: TargetQueues | None,
        turns: PoolTurns,
    ) -> None:
        self._runtime, self._batch, self._rules = runtime, batch, rules
        self._waiting: dict[Key, list[ReadPiece]] = defaultdict(list)
        self._runs: dict[Key, TargetRun] = {}
        self._live: dict[Key, LiveQueue] = {}  # the queues of the live runs
        self._keeping: set[Key] = set()  # targets whose live run keeps a thread
        self._leaving: set[Key] = (
            set()
        )  # targets whose live run must end, because other targets are waiting for its slot
        self._turns = turns
        self._finishing = self._wound_down = False
        self._loop = http
        self._before = before
        self.delivered: Counter[Key] = Counter()
        self.engine = TargetRuns(runtime, batch, Stop(), Threads("streaming", THREADS_AT_ONCE), http)

    def has(self, key: Key) -> bool:
        """Return whether this batch still has work for a target. Any thread may call this."""
        return not self.engine.is_closed and (key in self._runs or key in self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether any target has a run, or deliveries that are waiting for one."""
        return bool(self._runs or self._waiting)

    def offer(self, pieces: Iterable[ReadPiece]) -> None:
        """Add deliveries to the queues of their targets."""
        notified: dict[Key, TargetRun] = {}
        for each in pieces:
            key = each.piece.rule, each.piece.target
            if (live := self._live.get(key)) is not None and key not in self._leaving:
                live.put(each)
                if key not in self._keeping:
                    notified[key] = self._runs[key]
            else:
                self._waiting[key].append(each)
        if notified:
            self._loop.notify(notified.values())

    def finish(self) -> None:
        """Let runs end as soon as they have no work left, because no more pieces will be added."""
        self._finishing = True
        for live in self._live.values():
            live.end()
        self._loop.notify([self._runs[key] for key in self._live])

    def poll(self) -> None:
        """Begin runs for idle targets whose deliveries are waiting, without blocking."""
        for run in self.engine.take_ended():
            self._end(run)
        if self._before is not None and self._before.engine.is_closed:
            self._before = None
        others = self._before
        idle = [key for key in self._waiting if key not in self._runs and not (others and others.has(key))]
        if idle and self._turns:
            idle = self._round_robin(idle, others)
        if idle:
            self._begin(list(_numbered(each for key in idle for each in self._waiting.pop(key))))
        self.engine.poll()

    @property
    def has_waiting(self) -> bool:
        """Whether deliveries are waiting for the next run of their target."""
        return bool(self._waiting)

    def wind_down(self) -> None:
        """Start no more requests. Deliveries that were not sent get no outcome."""
        if not self._wound_down:
            self._wound_down = True
            self._waiting.clear()
            self.engine.wind_down()

    def close(self) -> None:
        """Stop. Deliveries that were not sent get no outcome, and those in flight are deferred until their timeout."""
        if self.engine.is_closed:
            return
        self._wound_down = True
        self._waiting.clear()
        self.engine.close()
        for run in self.engine.take_ended():
            self._end(run)

    def _round_robin(self, idle: list[Key], others: TargetQueues | None) -> list[Key]:
        """Return the targets that may begin now.

        If other targets are waiting for the slot of a live run, that run ends after its current pieces.
        """
        is_at_work = [*self._runs, *(list(others._runs) if others is not None else [])]
        begun, waited_for = self._turns.next(idle, is_at_work)
        leave = [key for key in waited_for if key in self._live and key not in self._leaving]
        for key in leave:
            self._live[key].end()
        self._leaving.update(leave)
        self._loop.notify([self._runs[key] for key in leave])
        return begun

    def _begin(self, read: list[ReadPiece]) -> None:
        pieces = tuple(each.piece for each in read)
        chunk = Chunk(self._batch.batch_id, 0, "", 0, pieces, sum(p.count for p in pieces), sum(p.size for p in pieces))
        runs = self.engine.plan(chunk, read, {}, self._live_queues(read))
        for run in runs:
            # Retries would block later deliveries, so they are left to retry batches.
            run.progress.may_wait = bool
            run.progress.leaves_retries = True
            key = run.report.rule, run.report.target
            self._runs[key] = run
            if run.queue is not None:
                self._live[key] = run.queue
                if not run.settings.uses_transfer_slot:
                    self._keeping.add(key)
        self.engine.start(runs)

    def _live_queues(self, read: Iterable[ReadPiece]) -> dict[Key, LiveQueue]:
        """Return queues with these pieces, for the targets that can have a live run."""
        found: dict[Key, LiveQueue] = defaultdict(LiveQueue)
        keeping = set(self._keeping)
        for each in read:
            key = rule, target = each.piece.rule, each.piece.target
            spec = self._rules.rules[rule].destinations.get(target)
            if not can_be_live(spec):
                continue
            if not isinstance(spec, HttpFields):
                if key not in keeping and len(keeping) >= _LIVE_THREADS:
                    continue
                keeping.add(key)
            found[key].put(each)
        for queue in found.values():
            queue.ends = self._finishing
        return dict(found)

    def _end(self, run: TargetRun) -> None:
        """Put the pieces that a run did not take back into its target's queue, and report its attempts to the breaker.

        After a crash, which is logged, the close of the batch handles these deliveries.
        """
        key = run.report.rule, run.report.target
        del self._runs[key]
        self.delivered[key] += run.report.delivered
        live = self._live.pop(key, None)
        self._leaving.discard(key)
        self._keeping.discard(key)
        if live and run.report.crashed is None and not self._wound_down:
            self._waiting[key][:0] = iter(live.take, None)
        if run.report.crashed is not None:
            log.error("runner %s: the run of a target crashed: %s", self._batch.runner, run.report.crashed)
        tally = run.tally()
        if tally is not None:
            self._runtime.ledger.targets.record_attempts([tally])
        if run.breaker.tripped or run.report.gone:
            publish_operational_events(self._runtime)


def http_loop() -> HttpLoop:
    """Return the loop that runs the HTTP targets of all batches of a streaming task."""
    return HttpLoop([], Threads("streaming http", THREADS_AT_ONCE))


def _numbered(pieces: Iterable[ReadPiece]) -> Iterator[ReadPiece]:
    """Yield the pieces with new numbers, so that each delivery of the chunk has its own number."""
    first = 0
    for each in pieces:
        yield replace(each, first=first)
        first += each.count


Key = tuple[str, str]


class PoolTurns:
    """Decides which targets of a batch may run, given the pools and overrides at the start of the batch.

    It is falsy if no pool limits the batch. `on_hold` has the rules whose pool has no slots.
    """

    def __init__(self, rules: RuleSet, pools: Mapping[str, PoolSlots] | None, overrides: OperatorOverrides) -> None:
        of_file = {name: QueuedTarget(rule.pool_name, rule.weight) for name, rule in rules.rules.items()}
        self._lanes = of_file | {name: QueuedTarget(*lane) for name, lane in overridden_lanes(rules, overrides).items()}
        closed = closed_pools(pools)
        self.on_hold = {name for name, lane in self._lanes.items() if lane.pool in closed}
        named = {lane.pool for lane in self._lanes.values()}
        self._slots = {name: slots for name, slots in bounding_slots(pools).items() if name in named}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def next(self, waiting: Iterable[Key], is_at_work: Collection[Key]) -> tuple[list[Key], list[Key]]:
        """Return the waiting targets that may begin, and the running targets for whose slots others are waiting."""
        wait = {key: self._lanes[key[0]] for key in waiting}
        counts = Counter(self._pool(key) for key in is_at_work)
        begun, short = may_begin(wait, counts, self._slots)
        return list(begun), [key for key in is_at_work if self._pool(key) in short]

    def _pool(self, key: Key) -> str:
        lane = self._lanes.get(key[0])  # the previous batch may run a rule that no longer exists
        return lane.pool if lane is not None else ""
