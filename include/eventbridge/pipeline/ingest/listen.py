"""Stage listen: returns the runner's unfinished batch, or plans the next one from the events on its bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from eventbridge.errors import BusError, NotFoundError, OffsetGapError, RuleFileError, UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch, BatchState, Range
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.batch_size import events_in_time, events_to_hand_out
from eventbridge.pipeline.ingest.ingestion_stop import is_ingestion_stopped
from eventbridge.pipeline.ingest.offsets import any_passed_over, later_start, waiting_events
from eventbridge.pipeline.ingest.open_batch import end_open
from eventbridge.pipeline.ingest.reload import take_up_rules
from eventbridge.pipeline.ingest.rule_transfer import (
    Arrival,
    arrivals,
    assign,
    inherited_offsets,
    kept_rules,
    lower_bounds,
    moved_targets,
    orphaned_batch,
    record_departure,
    to_catch_up,
    transfer_of,
)
from eventbridge.policy.batch_size import events_within, plan_ranges
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


@instrumented("listen", of="runner")
def listen(
    runtime: Runtime, runner: str, pools: Mapping[str, PoolSlots] | None = None, holder: str | None = None
) -> str | None:
    """Return the id of the runner's unfinished batch or of a new one; None if there is nothing to take, or no capacity.

    None also while a streaming task has the runner's lease. A batch that a streaming task left open when it ended is
    finished first. The `holder` of the lease gets the unfinished batch, else a new one that is open and empty, unless
    rules are being transferred.

    Today's rule files are read for a new batch only; if they have errors, the last valid rules apply. The batch takes
    as many events as the settings and the fan-out of the last batches allow. `pools` are the Airflow pools; None means
    unknown, and bounds nothing.

    Raises NotFoundError for a runner that no rule names, LedgerLostError and OffsetGapError where continuing would lose
    or repeat history, and BusError if the bus does not respond.
    """
    return _listen(runtime, runner, pools, holder)


def _listen(runtime: Runtime, runner: str, pools: Mapping[str, PoolSlots] | None, holder: str | None) -> str | None:
    lease = runtime.ledger.streaming.lease(runner)
    if lease is not None and lease.holder != holder:
        log.info("runner %s: %s has its streaming lease, until %s at least", runner, lease.holder, lease.until)
        return None
    repeat_bus_commits(runtime, runner)
    unfinished = runtime.ledger.batches.unfinished(runner)
    if unfinished is not None:
        claim_runner(runtime, runner)
        refuse_lost_ledger(runtime)
        return unfinished.batch_id if end_open(runtime, unfinished, holder) else None
    taken = take_up_rules(runtime)
    rules = taken.rules.for_runner(runner)
    moved = moved_targets(runtime, taken.rules, rules, runner)
    buses = rules.buses or taken.rules.only({rule for rule, _ in moved}).buses
    if not buses:
        raise NotFoundError(f"no rule has the runner {runner!r}. {suggest('Runners', runner, taken.rules.runners())}")
    (bus,) = buses.values()
    if full := storage_refusal(runtime, taken.rules, bus):
        log.warning("runner %s: no new batch is planned: %s", runner, full)
        return None
    with closing(runtime.open_source(bus)) as source:
        known = _standing(runtime, runner, bus)
        arriving = arrivals(runtime, rules, runner, bus, source)
        if not known and any(each.batch is not None for each in arriving):
            return _adopt_orphaned_batch(runtime, runner, arriving)
        offsets = _registered(runtime, runner, bus, source, arriving, known)
        refuse_other_log(runtime, runner, bus, source)
        kept = kept_rules(runtime, taken.rules, {rule for rule, _ in moved}, bus, source, offsets)
        if kept.must_wait:
            log.info("runner %s waits for the end of an open batch: its rules move to the runner of that batch", runner)
        if kept.must_wait or not (rules.rules or kept.rules):
            return None
        # False: rule files changed, or another attempt planned a batch; this one stood still in between.
        if not record_departure(runtime, taken, [each for each in moved if each[0] not in kept.rules], runner):
            return _listen(runtime, runner, pools, holder)
        transfer = transfer_of(runner, offsets, arriving)
        if (old := to_catch_up(transfer.behind, taken.rules.runners())) is not None:
            log.info("runner %s plans a batch for %s, which has no rules any more", runner, old)
            return _listen(runtime, old, pools, None)
        rules = rules.without(transfer.waiting)
        if kept.rules:
            rules = RuleSet.joined([rules, taken.rules.only(kept.rules)])
        until = lower_bounds(transfer.until, kept.until)
        if not assign(runtime, taken, rules, runner):
            return _listen(runtime, runner, pools, holder)
        most = events_to_hand_out(runtime, runner, rules, pools)
        if isinstance(source, InboxLog):
            if is_ingestion_stopped(runtime):
                return None
            _fill_inbox(runtime, runner, source, _Capacity(offsets, until, most))
        opens = holder is not None and not (until or transfer.waiting)
        opens = opens and not any_passed_over(bus, source, offsets)  # which takes an end that is known before
        capacity = _Capacity(offsets, until, most)
        plan = _empty_plan(bus, source, offsets) if opens else _plan(runtime, runner, bus, source, capacity)
    if is_ingestion_stopped(runtime):
        return None
    if not plan.ranges:
        return _adopt_orphaned_batch(runtime, runner, arriving)
    if known:  # else that was made sure of before registering
        refuse_lost_ledger(runtime)
    state: BatchState = "open" if opens else "planned"
    planned = _publish(runtime, _PinnedRules(runner, bus, rules, taken.rule_set), plan, state)
    # Somebody else planned first, and has perhaps committed since: this attempt stood still in between.
    return planned if planned is not None else _listen(runtime, runner, pools, holder)


def _adopt_orphaned_batch(runtime: Runtime, runner: str, arriving: Sequence[Arrival]) -> str | None:
    """Return the open batch that arriving rules wait for, if its runner has no rules any more, so that this run
    finishes it.
    """
    known = runtime.ledger.rules.in_force()
    batch_id = orphaned_batch(arriving, known.runners if known is not None else {})
    if batch_id is None or not end_open(runtime, runtime.ledger.batches.get(batch_id)):
        return None
    log.info("runner %s finishes batch %s, whose runner has no rules any more", runner, batch_id)
    return batch_id


def repeat_bus_commits(runtime: Runtime, runner: str) -> None:
    """Commit offsets on the bus that an earlier commit could not; if that fails too, leave it to the next listen.

    It commits the current offsets of the ledger, which is the source of truth: the end of an old batch would move the
    group back.
    """
    outstanding = runtime.ledger.settlement.bus_commits_outstanding(runner)
    if not outstanding:
        return
    newest = outstanding[-1]
    try:
        bus = runtime.rule_set().buses.get(newest.bus) or runtime.rules_of(newest).buses[newest.bus]
        with closing(runtime.open_source(bus)) as source:
            refuse_other_log(runtime, runner, bus, source)
            standing = runtime.ledger.offsets.committed(runner)
            source.commit(
                runner, {partition: standing[partition] for partition in source.partitions() if partition in standing}
            )
    # What is wrong with today's rules, or with today's bus, does not stop a batch that is open.
    except (BusError, OffsetGapError, RuleFileError) as error:
        log.warning("the bus %s still does not take the offsets of %s: %s", newest.bus, runner, error)
        return
    for batch in outstanding:
        runtime.ledger.settlement.mark_bus_committed(batch.batch_id)


def _registered(
    runtime: Runtime,
    runner: str,
    bus: Bus,
    source: LogSource,
    arriving: Sequence[Arrival],
    known: Mapping[Partition, int],
) -> Mapping[Partition, int]:
    """Return the group's offset in each partition of its bus, after registering partitions that are not `known`."""
    claim_runner(runtime, runner)
    new = [partition for partition in source.partitions() if partition not in known]
    if known:
        refuse_other_log(runtime, runner, bus, source)
    else:
        refuse_lost_ledger(runtime, always=True)
    if new:
        offsets = {
            partition: later_start(runtime, runner, bus, source, partition)
            if known
            else start_offset(bus, source, partition)
            for partition in new
        }
        if not known:
            offsets |= inherited_offsets(arriving)
        runtime.ledger.offsets.register(runner, bus.name, offsets, source.identities())
        known = runtime.ledger.offsets.committed(runner)
    return known


def _standing(runtime: Runtime, runner: str, bus: Bus) -> Mapping[Partition, int]:
    others = {row.bus for row in runtime.ledger.offsets.find(runner)} - {bus.name}
    if others:
        raise UserError(
            f"The runner {runner!r} has consumed the bus {others.pop()!r} until now and its rules name {bus.name!r}. "
            f"Give the rules of {bus.name!r} a runner with another name: offsets of two buses cannot be distinguished."
        )
    return runtime.ledger.offsets.committed(runner)


class _Capacity(NamedTuple):
    """A group's position, the offset each partition may be read to (absent: its end), and how many events to take."""

    offsets: Mapping[Partition, int]
    until: Mapping[Partition, int]
    most: int | None


class _Plan(NamedTuple):
    """The ranges that a new batch takes, and whether its bus holds more."""

    ranges: list[Range]
    is_full: bool


def _plan(runtime: Runtime, runner: str, bus: Bus, source: LogSource, capacity: _Capacity) -> _Plan:
    existing = set(source.partitions())
    waiting = []
    for partition, offset in sorted(capacity.offsets.items()):
        if partition.topic not in bus.source.topics:  # the file no longer names it; where the group stands is kept
            continue
        if partition in existing:
            found = waiting_events(bus, source, partition, offset)
            waiting.append(found._replace(end=min(found.end, capacity.until.get(partition, found.end))))
    held = sum(each.end - each.readable_from for each in waiting)
    # Another topic's few events would wait for the whole of a batch that is large.
    limit = _most_events(runtime, runner, capacity, held if len(bus.source.topics) == 1 else 0)
    return _Plan([Range(*take) for take in plan_ranges(waiting, limit, bus.weights)], is_full=held > limit)


def _most_events(runtime: Runtime, runner: str, capacity: _Capacity, backlog: int = 0) -> int:
    settings = runtime.settings
    max_events = min(settings.batch_max_events, events_in_time(runtime, runner, backlog))
    max_events = max_events if capacity.most is None else min(capacity.most, max_events)
    return events_within(max_events, settings.batch_max_size, _mean_bytes(runtime, runner))


def _fill_inbox(runtime: Runtime, runner: str, source: LogSource, capacity: _Capacity) -> None:
    """Take messages over from queues, so that the inbox holds as many as a batch may take."""
    held = sum(max(0, source.end(partition) - capacity.offsets.get(partition, 0)) for partition in source.partitions())
    if isinstance(source, InboxLog) and (most := _most_events(runtime, runner, capacity) - held) > 0:
        source.take_in(most)


def _empty_plan(bus: Bus, source: LogSource, offsets: Mapping[Partition, int]) -> _Plan:
    """Return the plan of an open batch: the group's offset in each partition, with no events yet."""
    existing = set(source.partitions())
    standing = [(partition, at) for partition, at in sorted(offsets.items()) if partition.topic in bus.source.topics]
    return _Plan([Range(partition, at, at) for partition, at in standing if partition in existing], is_full=False)


def _mean_bytes(runtime: Runtime, runner: str) -> float | None:
    """Return the mean size of a message in the runner's last landed batch, in bytes."""
    for batch in runtime.ledger.batches.find(limit=10, runner=runner):
        files = runtime.ledger.files.of_batch(batch.batch_id, "buffer") if batch.kind == "normal" else []
        landed = [file.detail for file in files if isinstance(file.detail, LandedRange)]
        if read := sum(each.read for each in landed):
            return sum(each.size for each in landed) / read
    return None


class _PinnedRules(NamedTuple):
    """What a batch is planned for, its rules, and the rule set in force that these come from."""

    runner: str
    bus: Bus
    rules: RuleSet
    in_force: str


def _publish(runtime: Runtime, of: _PinnedRules, plan: _Plan, state: BatchState) -> str | None:
    frozen = freeze_rules(runtime.store, of.rules)
    now = runtime.ledger.now()
    batch = Batch(
        new_batch_id(now), "normal", of.runner, of.bus.name, state, frozen, planned_at=now, is_full=plan.is_full
    )
    return batch.batch_id if runtime.ledger.batches.plan(batch, plan.ranges, of.in_force) else None
