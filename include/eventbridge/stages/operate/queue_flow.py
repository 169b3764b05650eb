"""How fast each queue is published to and settled, and when its lag is gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from eventbridge.decision.flow import WINDOW, Flow, flow
from eventbridge.model.move import Move
from eventbridge.model.queue import Queue
from eventbridge.rule import RuleSet
from eventbridge.stages.operate.queue_status import QueueStatus
from eventbridge.stages.runtime.runtime import Runtime

#: Batches that are looked at: what a runner commits in the window, if each takes five seconds.
_MOST_BATCHES = 60


@dataclass(frozen=True)
class QueueFlow:
    """The flow of one queue, as a runner sees it."""

    runner: str
    bus: str
    queue: Queue
    flow: Flow


def queue_flows(work: Runtime, rules: RuleSet, queues: Sequence[QueueStatus]) -> Iterator[QueueFlow]:
    """Yield the flow of each queue whose offsets count on its log and that rules still name; asks buses and ledger."""
    by_runner: dict[tuple[str, str], list[QueueStatus]] = defaultdict(list)
    for each in queues:
        if each.queue.topic in rules.buses[each.bus].source.topics and not each.gap:
            by_runner[each.runner, each.bus].append(each)
    for (runner, bus), group in by_runner.items():
        moves: dict[Queue, list[Move]] = defaultdict(list)
        for move in work.ledger.moves(runner, most=_MOST_BATCHES):
            moves[move.queue].append(move)
        now = work.clock()
        with closing(work.open_source(rules.buses[bus])) as source:
            existing = set(source.queues())
            for each in group:
                before = source.offset_at(each.queue, now - WINDOW) if each.queue in existing else each.end
                found = flow(moves[each.queue], max(0, each.end - before), each.end - each.committed, now)
                yield QueueFlow(runner, bus, each.queue, found)
