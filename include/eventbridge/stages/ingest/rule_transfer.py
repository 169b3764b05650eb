"""Rules that moved from one runner to another: nothing of them is missed, comes twice, or changes its order.

A runner that has a rule no more notes where it stands before it plans its first batch without it. The rule's new runner
takes the rule from there on, and not while the old one's last batch with it is under way: what that delivers comes
first. A runner that is not as far yet goes on without the rule up to there. For one that is further the old one catches
up first: `eventbridge.stages.ingest.catching_up`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventbridge.errors import RuleMovedError
from eventbridge.model.assignment import Deliverers, LeftAt
from eventbridge.model.batch import Batch
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.partition import Partition
from eventbridge.rule import Bus, RuleSet
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.guards.log_identity import standing_offset
from eventbridge.stages.ingest.reload import TakenRules
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """Rules that come from an old runner: up to where that delivers for them, and its last batch with them, if open.

    `is_over`: that delivers no more for them, as it has gone on without them, or as its offsets count on another log.
    """

    old: str
    rules: tuple[str, ...]
    line: Mapping[Partition, int]
    batch: Batch | None
    is_over: bool


class CatchUp(NamedTuple):
    """Rules whose old runner has so many events to deliver for them before the new one, which is further, takes them.

    `is_at_work`: it is, with a batch that ends perhaps further.
    """

    old: str
    rules: tuple[str, ...]
    events: int
    is_at_work: bool

    def __str__(self) -> str:
        """Return what is waited for, to people."""
        return (
            f"The {_named(self.rules)} {'comes' if len(self.rules) == 1 else 'come'} from runner {self.old!r}, which "
            f"delivers {self.events:,} events more before: this runner waits for it meanwhile"
        )


@dataclass(frozen=True)
class RuleTransfer:
    """What a runner must not take yet: `waiting` rules at all, and partitions only `until` there while these wait.

    `behind`: those of them for which an old runner is to catch up.
    """

    waiting: frozenset[str] = frozenset()
    until: Mapping[Partition, int] = field(default_factory=dict)
    behind: tuple[CatchUp, ...] = ()


def arrivals(runtime: Runtime, rules: RuleSet, runner: str, bus: Bus, source: LogSource) -> list[Arrival]:
    """Return what comes to a runner from others on the same bus, or back to it after a batch that it took without."""
    # All of it at one moment, and after today's rules came into force: from then on the old runner plans without them.
    known = runtime.ledger.deliverers()
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
    # A broker that is away cannot be asked; what the rule has not seen of it is there still when it comes back.
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
    """Return where a new group starts that takes over rules: at the earliest offset from which one is to be taken."""
    start: dict[Partition, int] = {}
    for each in arriving:
        for partition, offset in each.line.items():
            start[partition] = min(offset, start.get(partition, offset))
    return start


def transfer_of(runner: str, known: Mapping[Partition, int], arriving: Iterable[Arrival]) -> RuleTransfer:
    """Return which arriving rules a group that stands at `known` must leave out of its next batch.

    Raises RuleMovedError if it is further than a rule whose old runner delivers no more for it: what lies between would
    be missed.
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
                place = max(offset, known[partition])
                until[partition] = min(place, until.get(partition, place))
    if waiting:
        log.info("rules that come to runner %s and wait for their place: %s", runner, ", ".join(sorted(waiting)))
    for each_behind in behind:
        log.info("runner %s: %s", runner, each_behind)
    return RuleTransfer(frozenset(waiting), until, tuple(behind))


def _named(rules: Sequence[str]) -> str:
    return f"rule {rules[0]}" if len(rules) == 1 else f"rules {', '.join(rules)}"


def _error_message(runner: str, arrival: Arrival, further: int) -> str:
    rules, them = _named(arrival.rules), "it" if len(arrival.rules) == 1 else "them"
    if arrival.old == runner:
        return (
            f"The {rules} came back to runner {runner!r}, which took {further:,} events without {them}: these would be "
            f"missed. Give {them} a runner of a new name, which starts where this one left {them}"
        )
    return (
        f"The {rules} moved from runner {arrival.old!r}, which delivers no more for {them}, to {runner!r}, which is "
        f"{further:,} events further: these would be missed. Give {them} a runner of a new name, which misses none"
    )


def to_catch_up(behind: Iterable[CatchUp], runners: Collection[str]) -> str | None:
    """Return an old runner that has no rules any more and is to catch up, so that nobody else would plan its batch."""
    return next((each.old for each in behind if not each.is_at_work and each.old not in runners), None)


def orphaned_batch(arriving: Iterable[Arrival], runners: Mapping[str, str]) -> str | None:
    """Return the open batch of an old runner that has no rules any more, so that nobody else would finish it."""
    return next((each.batch.batch_id for each in arriving if each.batch is not None and each.old not in runners), None)


def record_departure(runtime: Runtime, taken: TakenRules, gone: Iterable[tuple[str, str]], runner: str) -> bool:
    """Note where a runner stands that is about to plan without rules which today's files give to another one.

    False if rule files have changed since, or another attempt has planned a batch: then there is nothing to plan.
    """
    return runtime.ledger.leave_targets(runner, gone, taken.rule_set)


def assign(runtime: Runtime, taken: TakenRules, rules: RuleSet, runner: str) -> bool:
    """Note that a runner delivers for its rules from now on; writes only what changed.

    False if rule files have changed since: then they may be another runner's by now, and there is nothing to plan.
    """
    assigned = runtime.ledger.assignments()
    pairs = {(rule.name, target) for rule in rules.rules.values() for target in rule.targets}
    changed = [pair for pair in pairs if pair not in assigned or assigned[pair].runner != runner or assigned[pair].left]
    return runtime.ledger.assign_targets(runner, changed, taken.rule_set)
