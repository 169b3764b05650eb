"""Applies retention to the store, the ledger and the embedded buses, and removes orphaned files.

The DAG `eventbridge_maintain_store` and `eventbridge maintain` call it. A run uses the ledger's indexes and lists days
of the store, never all files, and ends after a bounded time; the next run continues. If it is killed at any point, or
runs twice at the same time, it removes nothing that is needed: a batch is first marked in the ledger, then the batch's
files are removed, and then its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Final

from eventbridge.errors import BusError, UserError
from eventbridge.model.partition import ConsumerOffset, Partition
from eventbridge.model.runner import LeftAt
from eventbridge.model.stat import Grain, Scope
from eventbridge.policy.retention import LEAST_AGE
from eventbridge.progress import Progress, unreported
from eventbridge.rules import Bus
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.identity import claim_runner, refuse_lost_ledger
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.quotas import count_store, is_count_due
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import InboxLog, LogSource, TrimmableLog
from eventbridge.store import layout
from eventbridge.upkeep.compaction import compact_days, prune_compacted
from eventbridge.upkeep.event_index import index_events
from eventbridge.upkeep.pruning import prune_batches, sweep_expired, sweep_lost
from eventbridge.upkeep.run import Maintained, RetentionRun, Retentions
from eventbridge.upkeep.tables import maintain_tables

#: The time for which stats are kept before they are folded into the next longer grain, by scope. There are few buses,
#: but perhaps thousands of targets.
KEPT: Final[Mapping[Scope, Mapping[Grain, timedelta]]] = {
    "bus": {"minute": timedelta(hours=26), "hour": timedelta(days=32), "day": timedelta(days=800)},
    "target": {"minute": timedelta(hours=3), "hour": timedelta(days=8), "day": timedelta(days=400)},
}

#: The maximum number of stats of a scope; if there are more, those older than 1/2, 1/4 ... of KEPT are folded too.
MAX_ROWS: Final = 1_000_000
_NEXT_GRAIN: Final[Mapping[Grain, Grain]] = {"minute": "hour", "hour": "day", "day": "ever"}

#: The maximum number of times that stats are folded. Each time halves the age, so that the last one is 1/128 of KEPT.
_HALVINGS: Final = 8
log = logging.getLogger(__name__)

#: The maximum number of messages to trim between two checks of the time; between them, publishers get the lock.
_TRIM_MESSAGES = 50_000


@instrumented("maintain", of="")
def maintain(
    runtime: Runtime, *, dry_run: bool = False, budget: timedelta | None = None, progress: Progress = unreported
) -> Maintained:
    """Apply retention and return what was removed; `budget` is by default that of the settings.

    `progress` gets the number of files, rows and messages.

    Raises LedgerLostError, and removes nothing, if ledger and store do not belong together.
    """
    for runner in sorted({row.group for row in runtime.ledger.offsets.find()}):
        claim_runner(runtime, runner)
    refuse_lost_ledger(runtime, always=True)
    seconds = runtime.settings.maintain_timeout if budget is None else budget.total_seconds()
    run = RetentionRun(runtime, seconds, dry_run=dry_run, progress=progress)
    retentions = Retentions(runtime, run.now)
    fold_stats(run)  # first, because it is quick and pruning may take all the time
    prune_batches(run, retentions)
    _prune_history(run, retentions)
    sweep_lost(run)
    sweep_expired(run, retentions)
    prune_compacted(run, retentions)
    _trim_buses(run)
    index_events(run)
    maintain_tables(run)
    compact_days(run)  # after what frees space, because it needs some
    _count(run)
    return run.done


def _count(run: RetentionRun) -> None:
    """Measure the store for its quota after the removals."""
    if not run.dry_run and is_count_due(run.runtime, run.now):
        run.done.store_bytes = count_store(run.runtime)


def _prune_history(run: RetentionRun, retentions: Retentions) -> None:
    """Remove history that is older than the retention of manifests; the current version of a rule is always kept."""
    if run.dry_run or run.is_over():
        return
    ledger, before = run.runtime.ledger, run.now - retentions.history_retention
    run.done.rule_changes, rule_sets = ledger.retention.drop_rule_changes(before)
    run.remove([layout.rule_set(each) for each in sorted(rule_sets) if not ledger.retention.is_rule_set_named(each)])
    ledger.actions.drop(before)
    ledger.queues.forget_abandoned()
    run.done.requests = ledger.retention.drop_ended_requests(before)


def fold_stats(run: RetentionRun, max_rows: int = MAX_ROWS) -> None:
    """Fold old stats, and newer ones if a scope has more rows than `max_rows`; a dry run changes nothing."""
    if run.dry_run:
        return
    for scope, kept in KEPT.items():
        for halved in range(_HALVINGS):
            for grain, age in kept.items():
                if not _fold(run, scope, grain, age / 2**halved):
                    return
            if run.runtime.ledger.stats.row_count(scope) <= max_rows:
                break


def _fold(run: RetentionRun, scope: Scope, grain: Grain, age: timedelta) -> bool:
    """Fold those stats of a grain that are older than the given age; return False if the time of the run is over."""
    while run.runtime.ledger.stats.fold(scope, grain, _NEXT_GRAIN[grain], run.now - age) is not None:
        run.progressed()
        if run.is_over():
            return False
    return True


def _trim_buses(run: RetentionRun) -> None:
    """Trim the buses of the current rules; a bus that does not respond is logged and keeps all messages.

    The bus `eventbridge` is not among them, because it is trimmed when events are published to it.
    """
    known = run.runtime.ledger.assignments.deliverers()
    rules = run.runtime.rule_set()
    for bus in rules.buses.values():
        left = known.departures({rule.name for rule in rules.rules.values() if rule.bus == bus.name})
        rows = [row for row in known.offsets if row.bus == bus.name and row.partition.topic in bus.source.topics]
        if bus.name != OPERATIONS_BUS.name and rows and not run.is_over():
            try:
                with closing(run.runtime.open_source(bus)) as source:
                    _trim(run, bus, source, rows, left)
            except (BusError, UserError) as error:
                log.warning("the bus %s keeps messages that are past their retention for now: %s", bus.name, error)


def _trim(
    run: RetentionRun, bus: Bus, source: LogSource, rows: Sequence[ConsumerOffset], left: Sequence[LeftAt]
) -> None:
    """Trim a bus up to the lowest committed offset of all registered runners, with or without rules.

    Messages that a moved rule still needs, from the offset at which its new runner begins, are kept too.
    """
    if not isinstance(source, TrimmableLog):  # it has its own retention
        return
    identities = source.identities()
    if any(row.bus_identity not in ("", identities.get(row.partition.topic)) for row in rows):
        run.done.kept[f"bus {bus.name}: a runner's offsets belong to another log"] += 1
        return
    # The archive has the messages of an inbox, which therefore keeps only those that a runner has not taken.
    kept = LEAST_AGE if isinstance(source, InboxLog) else max(LEAST_AGE, timedelta(seconds=bus.retention_seconds))
    before = run.now - kept
    if isinstance(source, InboxLog):
        lost = source.lost_files(before)
        run.remove(lost)
        run.done.lost_files += len(lost)
    taken = _lowest_needed_offsets(rows, left, identities)
    first = {partition: source.earliest(partition) for partition in source.partitions()}
    for partition, earliest in first.items():
        old = source.offset_at(partition, before)
        end = min(old, taken.get(partition, earliest))
        if end < old:
            run.done.kept[f"bus {bus.name}: messages that a runner has not taken"] += old - end
        if run.dry_run:
            run.done.messages[bus.name] += max(0, end - earliest)
            continue
        while earliest < end and not run.is_over():
            earliest = min(end, earliest + _TRIM_MESSAGES)
            first[partition] = earliest
            run.done.messages[bus.name] += source.trim(before, first)
            run.progressed()


def _lowest_needed_offsets(
    rows: Sequence[ConsumerOffset], left: Sequence[LeftAt], identities: Mapping[str, str]
) -> dict[Partition, int]:
    """Return, by partition, the offset below which no runner, and no rule that was moved, still needs messages."""
    taken: dict[Partition, int] = {}
    for row in rows:
        taken[row.partition] = min(row.offset, taken.get(row.partition, row.offset))
    for each in left:
        known = identities.get(each.partition.topic, each.bus_identity)
        if each.partition in taken and each.bus_identity in ("", known):
            taken[each.partition] = min(each.offset, taken[each.partition])
    return taken
