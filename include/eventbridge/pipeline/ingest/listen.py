"""Runs the listen stage: returns the runner's unfinished batch, or plans the next one from the events on its bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventbridge.errors import InfrastructureError, NotFoundError, UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch, BatchState, Range
from eventbridge.model.partition import Partition
from eventbridge.pipeline.commit_to_bus import repeat_bus_commits
from eventbridge.pipeline.ingest import rule_transfer
from eventbridge.pipeline.ingest.batch_size import events_to_hand_out, max_events
from eventbridge.pipeline.ingest.ingestion_stop import is_ingestion_stopped
from eventbridge.pipeline.ingest.open_batch import end_open
from eventbridge.pipeline.ingest.reload import TakenRules, take_up_rules
from eventbridge.pipeline.ingest.start_offsets import any_passed_over, later_start, waiting_events
from eventbridge.policy.batch_size import plan_ranges
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.identity import claim_runner, refuse_lost_ledger, refuse_other_log, start_offset
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.quotas import storage_refusal
from eventbridge.runtime.runtime import Runtime
from eventbridge.similar_names import suggest
from eventbridge.sources.protocol import InboxLog, LogSource
from eventbridge.store.rule_sets import freeze_rules

log = logging.getLogger(__name__)

#: The maximum number of planning rounds. A round is repeated only if another process changed the rules or planned a
#: batch in the meantime, or if an old runner needs a batch first.
MAX_ROUNDS: Final = 20


@instrumented("listen", of="runner")
def listen(
    runtime: Runtime, runner: str, pools: Mapping[str, PoolSlots] | None = None, holder: str | None = None
) -> str | None:
    """Return the id of the runner's unfinished batch or of a new one; None if there is no batch to run now, for example
    because there are no events or no free space in the store.

    Also returns None while a process other than `holder` has the runner's streaming lease. A batch that a streaming
    task left open when it ended is finished first. The `holder` of the lease gets the unfinished batch, else a new
    batch that is open and empty, unless rules are being transferred or messages must be passed over.

    The current rule files are read only for a new batch; if they have errors, the last valid rules apply. The batch
    takes as many events as the settings and the fan-out of the last batches allow. `pools` are the Airflow pools; None
    means that they are unknown and limit nothing.

    Raises NotFoundError for a runner that no rule names, LedgerLostError and OffsetGapError if continuing would lose or
    repeat events, BusError if the bus does not respond, and InfrastructureError if the rules keep changing.
    """
    return BatchPlanner(runtime).plan(PlanRequest(runner, holder, pools))


class PlanRequest(NamedTuple):
    """The runner to plan for, the caller's name if it has the runner's streaming lease, and the Airflow pools."""

    runner: str
    holder: str | None = None
    pools: Mapping[str, PoolSlots] | None = None


class Done(NamedTuple):
    """The end of planning: the batch to run, or None if there is nothing to run now."""

    batch_id: str | None = None


class Again(NamedTuple):
    """A request for another round, because the state changed while it was read, or another runner needs a batch
    first."""

    request: PlanRequest


class RunnerRules(NamedTuple):
    """The rules in force, a runner's own rules, the (rule, target) pairs that move from it to other runners, and its
    bus."""

    taken: TakenRules
    rules: RuleSet
    moved: Sequence[tuple[str, str]]
    bus: Bus


class Registered(NamedTuple):
    """The offsets of a runner, whether this round registered it, and the rules that move to it from other runners."""

    offsets: Mapping[Partition, int]
    is_new: bool
    arriving: Sequence[rule_transfer.Arrival]


class Consumer(NamedTuple):
    """The rules of a runner's next batch, the runner's offsets, and the offset up to which it may take each partition.

    A partition that is absent from `until` may be taken to its end. `transfers` says whether rules are moving to or
    from the runner.
    """

    rules: RuleSet
    offsets: Mapping[Partition, int]
    until: Mapping[Partition, int]
    transfers: bool


class BatchPlan(NamedTuple):
    """The ranges of a new batch, whether its bus holds more events than it takes, and its first state."""

    ranges: list[Range]
    is_full: bool
    state: BatchState = "planned"


@dataclass(frozen=True)
class BatchPlanner:
    """Plans the next batch of a runner in rounds of the same steps.

    Each step ends the planning, requests another round, or returns the input of the next step. A process may pause or
    die between any two steps, so a step's write succeeds only if the rules and batches that the step read are still
    current.
    """

    runtime: Runtime

    def plan(self, request: PlanRequest) -> str | None:
        """Return the batch to run; None if there is nothing to run now."""
        for _ in range(MAX_ROUNDS):
            found = self._round(request)
            if isinstance(found, Done):
                return found.batch_id
            request = found.request
        raise InfrastructureError(
            f"No batch could be planned for runner {request.runner!r}: in each of {MAX_ROUNDS} tries, another process "
            "put other rules in force or planned a batch. If two processes read different rule files, make all of them "
            "read the same files; otherwise, try again"
        )

    def _round(self, request: PlanRequest) -> Done | Again:
        runtime = self.runtime
        if (finished := finish_open(runtime, request)) is not None:
            return finished
        own = take_up(runtime, request.runner)
        if isinstance(own, Done):
            return own
        with closing(runtime.open_source(own.bus)) as source:
            registered = register(runtime, request.runner, own, source)
            if isinstance(registered, Done):
                return registered
            consumer = settle_consumers(runtime, request, own, registered, source)
            if not isinstance(consumer, Consumer):
                return consumer
            plan = plan_events(runtime, request, own.bus, consumer, source)
        if plan is None or is_ingestion_stopped(runtime):
            return Done()
        if not plan.ranges:
            return Done(_adopt_orphaned_batch(runtime, request.runner, registered.arriving))
        if not registered.is_new:  # `register` has already checked this for a new runner
            refuse_lost_ledger(runtime)
        return publish(runtime, request, own, consumer.rules, plan)


def finish_open(runtime: Runtime, request: PlanRequest) -> Done | None:
    """Return the unfinished batch of a runner; None if a new batch must be planned.

    Before that, commits that the bus rejected are repeated, and an open batch is moved to `planned`. The result has no
    batch while a process other than `holder` has the streaming lease, or while the open batch must stay open.
    """
    runner, holder = request.runner, request.holder
    lease = runtime.ledger.streaming.lease(runner)
    if lease is not None and lease.holder != holder:
        log.info("runner %s: %s has its streaming lease until at least %s", runner, lease.holder, lease.until)
        return Done()
    repeat_bus_commits(runtime, runner)
    unfinished = runtime.ledger.batches.unfinished(runner)
    if unfinished is None:
        return None
    claim_runner(runtime, runner)
    refuse_lost_ledger(runtime)
    return Done(unfinished.batch_id if end_open(runtime, unfinished, holder) else None)


def take_up(runtime: Runtime, runner: str) -> RunnerRules | Done:
    """Put the current rules in force and return a runner's rules; Done if the owner of its bus has no quota left.

    Raises NotFoundError for a runner that no rule names.
    """
    taken = take_up_rules(runtime)
    rules = taken.rules.for_runner(runner)
    moved = rule_transfer.find_moved_targets(runtime, taken.rules, rules, runner)
    buses = rules.buses or taken.rules.only({rule for rule, _ in moved}).buses
    if not buses:
        raise NotFoundError(f"no rule has the runner {runner!r}. {suggest('Runners', runner, taken.rules.runners())}")
    (bus,) = buses.values()
    if full := storage_refusal(runtime, taken.rules, bus):
        log.warning("runner %s: no new batch is planned: %s", runner, full)
        return Done()
    return RunnerRules(taken, rules, moved, bus)


def register(runtime: Runtime, runner: str, own: RunnerRules, source: LogSource) -> Registered | Done:
    """Return the runner's offset in each partition of its bus, after registering partitions that are new to it.

    A new runner whose rules move from a runner with an unfinished batch is registered once that batch is committed.
    Until then, returns Done, with that batch if its own runner can no longer finish it.
    """
    rules, bus = own.rules, own.bus
    known = _standing(runtime, runner, bus)
    arriving = rule_transfer.arrivals(runtime, rules, runner, bus, source)
    if not known and any(each.batch is not None for each in arriving):
        return Done(_adopt_orphaned_batch(runtime, runner, arriving))
    claim_runner(runtime, runner)
    new = [partition for partition in source.partitions() if partition not in known]
    if known:
        refuse_other_log(runtime, runner, bus, source)
        starts = {partition: later_start(runtime, runner, bus, source, partition) for partition in new}
    else:
        refuse_lost_ledger(runtime, always=True)
        starts = {partition: start_offset(bus, source, partition) for partition in new}
    if not new:
        return Registered(known, not known, arriving)
    if not known:
        starts |= rule_transfer.inherited_offsets(arriving)
    runtime.ledger.offsets.register(runner, bus.name, starts, source.identities())
    refuse_other_log(runtime, runner, bus, source)  # another process may have registered them first
    return Registered(runtime.ledger.offsets.committed(runner), not known, arriving)


def settle_consumers(
    runtime: Runtime, request: PlanRequest, own: RunnerRules, registered: Registered, source: LogSource
) -> Consumer | Done | Again:
    """Record for which rules the runner delivers from now on, and for which it no longer delivers.

    Returns Done if its rules must wait for another runner's batch, or if it has no rules. Returns Again if rule files
    changed or another process planned a batch since the rules were read, or if an old runner that has no rules left
    must catch up first.
    """
    runner, (taken, rules, moved, bus) = request.runner, own
    kept = rule_transfer.find_kept_rules(
        runtime, taken.rules, {rule for rule, _ in moved}, bus, source, registered.offsets
    )
    if kept.must_wait:
        log.info("runner %s waits until an open batch ends, because its rules move to the runner of that batch", runner)
    if kept.must_wait or not (rules.rules or kept.rules):
        return Done()
    if not rule_transfer.record_departure(
        runtime, taken, [each for each in moved if each[0] not in kept.rules], runner
    ):
        return Again(request)
    transfer = rule_transfer.transfer_of(runner, registered.offsets, registered.arriving)
    if (old := rule_transfer.rules_to_catch_up(transfer.behind, taken.rules.runners())) is not None:
        log.info("runner %s plans a batch for %s, which no longer has any rules", runner, old)
        return Again(PlanRequest(old, pools=request.pools))
    rules = rules.without(transfer.waiting)
    if kept.rules:
        rules = RuleSet.join([rules, taken.rules.only(kept.rules)])
    if not rule_transfer.assign(runtime, taken, rules, runner):
        return Again(request)
    until = rule_transfer.lower_bounds(transfer.until, kept.until)
    return Consumer(rules, registered.offsets, until, bool(until or transfer.waiting))


def plan_events(
    runtime: Runtime, request: PlanRequest, bus: Bus, consumer: Consumer, source: LogSource
) -> BatchPlan | None:
    """Return the ranges of a new batch; None if ingestion is stopped, so that messages stay in their queues.

    For the `holder` of the lease, the batch is open and empty, unless its end must be known in advance because rules
    are being transferred or messages must be passed over.
    """
    runner = request.runner
    most = events_to_hand_out(runtime, runner, consumer.rules, request.pools)
    if isinstance(source, InboxLog):
        if is_ingestion_stopped(runtime):
            return None
        at = consumer.offsets
        available = sum(max(0, source.end(partition) - at.get(partition, 0)) for partition in source.partitions())
        if (room := max_events(runtime, runner, most) - available) > 0:
            source.take_in(room)  # the inbox then holds as many messages as a batch may take
    if request.holder is not None and not consumer.transfers and not any_passed_over(bus, source, consumer.offsets):
        standing = sorted(_existing(bus, source, consumer.offsets).items())
        return BatchPlan([Range(partition, at, at) for partition, at in standing], is_full=False, state="open")
    return _ranges(runtime, runner, bus, consumer, source, most)


def publish(runtime: Runtime, request: PlanRequest, own: RunnerRules, rules: RuleSet, plan: BatchPlan) -> Done | Again:
    """Record a batch with its ranges, pinned to `rules`; Again if the rules changed or another process planned a batch
    first.

    That batch may even be committed by now, because this process may have paused.
    """
    frozen = freeze_rules(runtime.store, rules)
    now, bus = runtime.ledger.now(), own.bus.name
    batch = Batch(
        new_batch_id(now), "normal", request.runner, bus, plan.state, frozen, planned_at=now, is_full=plan.is_full
    )
    planned = runtime.ledger.batches.plan(batch, plan.ranges, own.taken.rule_set)
    return Done(batch.batch_id) if planned else Again(request)


def _adopt_orphaned_batch(runtime: Runtime, runner: str, arriving: Sequence[rule_transfer.Arrival]) -> str | None:
    """Return the unfinished batch that arriving rules are waiting for, if its own runner has no rules left and so
    cannot finish it; else None."""
    known = runtime.ledger.rules.get_in_force()
    batch_id = rule_transfer.orphaned_batch(arriving, known.runners if known is not None else {})
    if batch_id is None or not end_open(runtime, runtime.ledger.batches.get(batch_id)):
        return None
    log.info("runner %s finishes batch %s, whose own runner no longer has any rules", runner, batch_id)
    return batch_id


def _standing(runtime: Runtime, runner: str, bus: Bus) -> Mapping[Partition, int]:
    others = {row.bus for row in runtime.ledger.offsets.find(runner)} - {bus.name}
    if others:
        raise UserError(
            f"The runner {runner!r} has consumed the bus {others.pop()!r} until now, but its rules name {bus.name!r}. "
            f"Give the rules of {bus.name!r} a runner with another name: a runner keeps the offsets of one bus only."
        )
    return runtime.ledger.offsets.committed(runner)


def _existing(bus: Bus, source: LogSource, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the offsets in the bus's current partitions. The ledger also keeps those of topics that were removed."""
    existing = set(source.partitions())
    return {
        partition: offset
        for partition, offset in offsets.items()
        if partition.topic in bus.source.topics and partition in existing
    }


def _ranges(
    runtime: Runtime, runner: str, bus: Bus, consumer: Consumer, source: LogSource, most: int | None
) -> BatchPlan:
    waiting = []
    for partition, offset in sorted(_existing(bus, source, consumer.offsets).items()):
        found = waiting_events(bus, source, partition, offset)
        waiting.append(found._replace(end=min(found.end, consumer.until.get(partition, found.end))))
    available = sum(each.end - each.readable_from for each in waiting)
    # With several topics, a batch that grows with the backlog would delay the few events of a quiet topic.
    limit = max_events(runtime, runner, most, available if len(bus.source.topics) == 1 else 0)
    return BatchPlan([Range(*take) for take in plan_ranges(waiting, limit, bus.weights)], is_full=available > limit)
