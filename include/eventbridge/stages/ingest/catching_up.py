"""Rules that moved to a runner which is further: their old runner goes on with them up to there, and no further.

The new one waits meanwhile, also where it stops for no other reason, so that both come to one place in every queue. The
rules are handed over there as they are to a runner that is behind (`eventbridge.stages.ingest.handover`). A rule is a
batch's of its old runner only while the new one is further, so that of two that look at one moment one has it at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from eventbridge.model.queue import Queue
from eventbridge.rule import Bus, RuleSet
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.guards.log_identity import standing
from eventbridge.stages.runtime.runtime import Runtime


@dataclass(frozen=True)
class Staying:
    """Rules that stay with a runner until it is as far as their new runners, and where it is to take of each queue.

    `waits`: a streaming task of a new runner has a batch open, and how far that comes nobody knows before it ends.
    """

    rules: frozenset[str] = frozenset()
    until: Mapping[Queue, int] = field(default_factory=dict)
    waits: bool = False


def moved_away(work: Runtime, today: RuleSet, rules: RuleSet, runner: str) -> list[tuple[str, str]]:
    """Return the (rule, target) that a runner delivers for still, and that today's files give to another of its bus.

    `rules` are those that they give to it.
    """
    gone = [
        pair
        for pair, was in work.ledger.assignments().items()
        if was.runner == runner and not was.left and pair[0] not in rules.rules and pair[0] in today.rules
    ]
    buses = {row.bus for row in work.ledger.consumer_offsets(runner)} if gone else set()
    return [pair for pair in gone if today.rules[pair[0]].bus in buses]


def staying(
    work: Runtime, today: RuleSet, moved: Iterable[str], bus: Bus, source: LogSource, offsets: Mapping[Queue, int]
) -> Staying:
    """Return which rules that `moved` away are to stay with a runner that stands at `offsets`, and up to where.

    Call it after today's rules came into force: by others no new runner plans a batch any more.
    """
    of_runner: dict[str, set[str]] = {}
    for rule in moved:
        of_runner.setdefault(today.rules[rule].runner, set()).add(rule)
    kept: set[str] = set()
    until = dict(offsets)
    for new, rules in of_runner.items():
        if work.ledger.batches(limit=None, runner=new, state="open") and work.ledger.streaming_lease(new) is not None:
            return Staying(frozenset(rules), offsets, waits=True)
        ends = _taken_by(work, new, bus, source, offsets.keys())
        further = {queue: end for queue, end in ends.items() if end > offsets[queue]}
        if further:
            kept |= rules
            until |= {queue: max(end, until[queue]) for queue, end in further.items()}
    return Staying(frozenset(kept), until) if kept else Staying()


def nearest(first: Mapping[Queue, int], second: Mapping[Queue, int]) -> dict[Queue, int]:
    """Return up to where queues may be taken by both of two bounds, of which each has some queues."""
    return {**first, **second} | {queue: min(first[queue], second[queue]) for queue in first.keys() & second.keys()}


def _taken_by(work: Runtime, runner: str, bus: Bus, source: LogSource, queues: Collection[Queue]) -> dict[Queue, int]:
    """Return up to where a runner has taken each queue, its batch under way included."""
    rows = [row for row in work.ledger.consumer_offsets(runner) if row.bus == bus.name and row.queue in queues]
    existing = set(source.queues())
    ends = {row.queue: standing(row, bus, source) for row in rows if row.queue in existing}
    batch = work.ledger.unfinished_batch(runner)
    for taken in work.ledger.ranges(batch.batch_id) if batch is not None else ():
        if taken.queue in ends:
            ends[taken.queue] = max(taken.end, ends[taken.queue])
    return ends
