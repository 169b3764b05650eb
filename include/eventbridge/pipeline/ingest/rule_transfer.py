"""Moves rules from one runner to another, so that no event is missed, delivered twice, or delivered out of order."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventbridge.errors import RuleMovedError
from eventbridge.model.batch import Batch
from eventbridge.model.partition import ConsumerOffset, Partition
from eventbridge.model.runner import Deliverers, LeftAt
from eventbridge.pipeline.ingest.reload import TakenRules
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.identity import standing_offset
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """Rules that move from the runner `old`, which delivers for them up to the offsets `line`.

    `batch` is the old runner's unfinished batch, which contains these rules. `is_over` is True if the old runner no
    longer delivers for them, because it has continued without them or because its offsets belong to another log.
    """

    old: str
    rules: tuple[str, ...]
    line: Mapping[Partition, int]
    batch: Batch | None
    is_over: bool


class CatchUp(NamedTuple):
    """Rules whose old runner must deliver `events` more events before the new runner, which is ahead, takes them over.

    `is_at_work` is True if the old runner has an unfinished batch.
    """

    old: str
    rules: tuple[str, ...]
    events: int
    is_at_work: bool

    def __str__(self) -> str:
        """Return the message about what the runner waits for."""
        return (
            f"The {_format_rules(self.rules)} {'comes' if len(self.rules) == 1 else 'come'} from runner {self.old!r}, "
            f"which has {self.events:,} more {'event' if self.events == 1 else 'events'} to deliver for "
            f"{'it' if len(self.rules) == 1 else 'them'} first: this runner waits until then"
        )


@dataclass(frozen=True)
class RuleTransfer:
    """The limits of a runner's next batch: it omits the `waiting` rules and ends at the offsets `until` at the latest.

    `behind` are the waiting rules for which an old runner must catch up.
    """

    waiting: frozenset[str] = frozenset()
    until: Mapping[Partition, int] = field(default_factory=dict)
    behind: tuple[CatchUp, ...] = ()


def arrivals(runtime: Runtime, rules: RuleSet, runner: str, bus: Bus, source: LogSource) -> list[Arrival]:
    """Return the rules that move to a runner from others on its bus, or that return to it after a batch without
    them."""
    # All of this is read in one transaction after the current rules came into force. From then on, the old runner plans
    # its batches without these rules.
    known = runtime.ledger.assignments.deliverers()
    groups = {row.group for row in known.offsets if row.bus == bus.name}
    found: dict[tuple[str, tuple[LeftAt, ...]], list[str]] = defaultdict(list)
    for rule in rules.rules.values():
        for target in rule.targets:
            was = known.assignments.get((rule.name, target))
            if was is None or was.runner not in groups or (was.runner == runner and not was.left):
                continue
            if rule.name not in found[was.runner, was.left]:
                found[was.runner, was.left].append(rule.name)
    partitions = (
        {partition for partition in source.partitions() if partition.topic in bus.source.topics} if found else set()
    )
    return [
        Arrival(old, tuple(names), *_line(runtime, bus, source, partitions, known, old, left))
        for (old, left), names in found.items()
    ]


def _line(
    runtime: Runtime,
    bus: Bus,
    source: LogSource,
    partitions: Collection[Partition],
    known: Deliverers,
    old: str,
    left: tuple[LeftAt, ...],
) -> tuple[Mapping[Partition, int], Batch | None, bool]:
    if left:
        rows = [ConsumerOffset(old, bus.name, *each[:2], "", runtime.clock(), each.bus_identity) for each in left]
    else:
        rows = [row for row in known.offsets if row.group == old]
    line = {row.partition: standing_offset(row, bus, source) for row in rows if row.partition in partitions}
    is_over = bool(left) or any(line.get(row.partition, row.offset) != row.offset for row in rows)
    # An unreachable broker cannot be queried. It still has the messages that the rule has not received.
    line |= {
        row.partition: row.offset for row in rows if row.partition not in partitions and _is_away(row.partition, bus)
    }
    at_work = None if left else known.open.get(old)
    if at_work is None:
        return line, None, is_over
    ends = {taken.partition: taken.end for taken in at_work.ranges}
    return line | {partition: ends[partition] for partition in line.keys() & ends.keys()}, at_work.batch, is_over


def _is_away(partition: Partition, bus: Bus) -> bool:
    return bool(partition.broker) and partition.topic in bus.source.topics


def inherited_offsets(arriving: Iterable[Arrival]) -> dict[Partition, int]:
    """Return the offsets at which a new runner starts if it takes over rules: in each partition, the lowest of these
    rules."""
    start: dict[Partition, int] = {}
    for each in arriving:
        for partition, offset in each.line.items():
            start[partition] = min(offset, start.get(partition, offset))
    return start


def transfer_of(runner: str, known: Mapping[Partition, int], arriving: Iterable[Arrival]) -> RuleTransfer:
    """Return the limits of a runner's next batch. The runner is at the offsets `known`, and the `arriving` rules move
    to it.

    Raises RuleMovedError if the runner is ahead of a rule for which no old runner delivers any longer, because the rule
    would miss the events in between.
    """
    behind: list[CatchUp] = []
    waiting: set[str] = set()
    until: dict[Partition, int] = {}
    for each in arriving:
        line = {partition: offset for partition, offset in each.line.items() if partition in known}
        further = sum(max(0, known[partition] - offset) for partition, offset in line.items())
        if further and each.is_over:
            raise RuleMovedError(_error_message(runner, each, further))
        if further:
            behind.append(CatchUp(each.old, each.rules, further, each.batch is not None))
        if each.batch is not None or any(known[partition] != offset for partition, offset in line.items()):
            waiting.update(each.rules)
            for partition, offset in line.items():
                further_offset = max(offset, known[partition])
                until[partition] = min(further_offset, until.get(partition, further_offset))
    if waiting:
        log.info(
            "runner %s: rules wait until it and their old runner are at the same offsets: %s",
            runner,
            ", ".join(sorted(waiting)),
        )
    for each_behind in behind:
        log.info("runner %s: %s", runner, each_behind)
    return RuleTransfer(frozenset(waiting), until, tuple(behind))


def _format_rules(rules: Sequence[str]) -> str:
    return f"rule {rules[0]}" if len(rules) == 1 else f"rules {', '.join(rules)}"


def _error_message(runner: str, arrival: Arrival, further: int) -> str:
    rules, them = _format_rules(arrival.rules), "it" if len(arrival.rules) == 1 else "them"
    events = f"{further:,} {'event' if further == 1 else 'events'}"
    if arrival.old == runner:
        return (
            f"The {rules} came back to runner {runner!r} and would miss {events} that the runner has "
            f"taken without {them}. Give {them} a runner with a new name, which starts where this runner stopped"
        )
    return (
        f"The {rules} moved from runner {arrival.old!r}, which no longer delivers for {them}, to {runner!r}, which is "
        f"{events} ahead, and would miss what it has taken. Give {them} a runner with a new name, which misses no event"
    )


def rules_to_catch_up(behind: Iterable[CatchUp], runners: Collection[str]) -> str | None:
    """Return an old runner that must catch up but has no rules left, so that no run of its own plans its batch."""
    return next((each.old for each in behind if not each.is_at_work and each.old not in runners), None)


def orphaned_batch(arriving: Iterable[Arrival], runners: Mapping[str, str]) -> str | None:
    """Return the unfinished batch of an old runner that has no rules left, so that no run of its own finishes it."""
    return next((each.batch.batch_id for each in arriving if each.batch is not None and each.old not in runners), None)


def record_departure(runtime: Runtime, taken: TakenRules, gone: Iterable[tuple[str, str]], runner: str) -> bool:
    """Record the offsets at which a runner stops delivering for rules that the files now assign to another runner.

    Returns False if rule files have changed in the meantime, or if another process has planned a batch; the caller must
    then plan again.
    """
    return runtime.ledger.assignments.leave(runner, gone, taken.rule_set)


def assign(runtime: Runtime, taken: TakenRules, rules: RuleSet, runner: str) -> bool:
    """Record that a runner delivers for its rules from now on; only changes are written.

    Returns False if rule files have changed in the meantime. Another runner may have the rules by now, so the caller
    must plan again.
    """
    assigned = runtime.ledger.assignments.all()
    pairs = {(rule.name, target) for rule in rules.rules.values() for target in rule.targets}
    changed = [pair for pair in pairs if pair not in assigned or assigned[pair].runner != runner or assigned[pair].left]
    return runtime.ledger.assignments.assign(runner, changed, taken.rule_set)


@dataclass(frozen=True)
class KeptRules:
    """Rules that stay with a runner until it reaches the offsets of their new runners, and those offsets (`until`).

    `must_wait` is True if a streaming task of a new runner has an open batch, whose end is not known yet.
    """

    rules: frozenset[str] = frozenset()
    until: Mapping[Partition, int] = field(default_factory=dict)
    must_wait: bool = False


def find_moved_targets(runtime: Runtime, today: RuleSet, rules: RuleSet, runner: str) -> list[tuple[str, str]]:
    """Return the (rule, target) pairs that a runner delivers for but the current files assign to another runner.

    They are limited to the runner's bus. `rules` are the rules that the current files assign to this runner.
    """
    gone = [
        pair
        for pair, was in runtime.ledger.assignments.all().items()
        if was.runner == runner and not was.left and pair[0] not in rules.rules and pair[0] in today.rules
    ]
    buses = {row.bus for row in runtime.ledger.offsets.find(runner)} if gone else set()
    return [pair for pair in gone if today.rules[pair[0]].bus in buses]


def find_kept_rules(
    runtime: Runtime,
    today: RuleSet,
    moved: Iterable[str],
    bus: Bus,
    source: LogSource,
    offsets: Mapping[Partition, int],
) -> KeptRules:
    """Return which of the `moved` rules stay with a runner at `offsets`, and up to which offsets.

    Call it after the current rules came into force, because from then on no new runner plans a batch with older rules.
    """
    of_runner: dict[str, set[str]] = {}
    for rule in moved:
        of_runner.setdefault(today.rules[rule].runner, set()).add(rule)
    kept: set[str] = set()
    until = dict(offsets)
    for new, rules in of_runner.items():
        if (
            runtime.ledger.batches.find(limit=None, runner=new, state="open")
            and runtime.ledger.streaming.lease(new) is not None
        ):
            return KeptRules(frozenset(rules), offsets, must_wait=True)
        ends = _taken_offsets(runtime, new, bus, source, offsets.keys())
        further = {partition: end for partition, end in ends.items() if end > offsets[partition]}
        if further:
            kept |= rules
            until |= {partition: max(end, until[partition]) for partition, end in further.items()}
    return KeptRules(frozenset(kept), until) if kept else KeptRules()


def lower_bounds(first: Mapping[Partition, int], second: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the lower of two bounds for each partition; each mapping has bounds for some partitions."""
    return {**first, **second} | {
        partition: min(first[partition], second[partition]) for partition in first.keys() & second.keys()
    }


def _taken_offsets(
    runtime: Runtime, runner: str, bus: Bus, source: LogSource, partitions: Collection[Partition]
) -> dict[Partition, int]:
    """Return the offset up to which a runner has taken each partition, including its batch in progress."""
    rows = [row for row in runtime.ledger.offsets.find(runner) if row.bus == bus.name and row.partition in partitions]
    existing = set(source.partitions())
    ends = {row.partition: standing_offset(row, bus, source) for row in rows if row.partition in existing}
    batch = runtime.ledger.batches.unfinished(runner)
    for taken in runtime.ledger.batches.ranges(batch.batch_id) if batch is not None else ():
        if taken.partition in ends:
            ends[taken.partition] = max(taken.end, ends[taken.partition])
    return ends
