"""Computes how fast each partition is published to and settled, and when its lag will be gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from eventbridge.model.partition import Move, Partition
from eventbridge.policy.flow import WINDOW, Flow, flow
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.partition_status import PartitionStatus

#: Batches that are read: those that a runner commits in the period, if each takes five seconds.
_MOST_BATCHES = 60


@dataclass(frozen=True)
class PartitionFlow:
    """The flow of one partition, as a runner sees it."""

    runner: str
    bus: str
    partition: Partition
    flow: Flow


def partition_flows(runtime: Runtime, rules: RuleSet, partitions: Sequence[PartitionStatus]) -> Iterator[PartitionFlow]:
    """Yield the flow of each partition that rules still name and whose offsets are valid on its log.

    Reads buses and ledger.
    """
    by_runner: dict[tuple[str, str], list[PartitionStatus]] = defaultdict(list)
    for each in partitions:
        if each.partition.topic in rules.buses[each.bus].source.topics and not each.gap:
            by_runner[each.runner, each.bus].append(each)
    for (runner, bus), group in by_runner.items():
        moves: dict[Partition, list[Move]] = defaultdict(list)
        for move in runtime.ledger.moves(runner, most=_MOST_BATCHES):
            moves[move.partition].append(move)
        now = runtime.clock()
        with closing(runtime.open_source(rules.buses[bus])) as source:
            existing = set(source.partitions())
            for each in group:
                before = source.offset_at(each.partition, now - WINDOW) if each.partition in existing else each.end
                found = flow(moves[each.partition], max(0, each.end - before), each.end - each.committed, now)
                yield PartitionFlow(runner, bus, each.partition, found)
