"""Rules that moved to a runner that is further ahead: their old runner continues with them up to its position.

The new runner waits meanwhile, so that both reach the same offset in every partition. There the rules are transferred
as to a runner that is behind (`eventbridge.pipeline.ingest.rule_transfer`). A batch of the old runner includes a rule
only while the new runner is ahead, so that at any moment at most one of the two has the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from eventbridge.model.partition import Partition
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.identity import standing_offset
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource


@dataclass(frozen=True)
class KeptRules:
    """Rules that stay with a runner until it reaches their new runners, and the offsets up to which it takes them.

    `must_wait`: a streaming task of a new runner has an open batch, whose end is unknown until it closes.
    """

    rules: frozenset[str] = frozenset()
    until: Mapping[Partition, int] = field(default_factory=dict)
    must_wait: bool = False


def moved_targets(runtime: Runtime, today: RuleSet, rules: RuleSet, runner: str) -> list[tuple[str, str]]:
    """Return the (rule, target) pairs that a runner still delivers for and that today's files give to another runner.

    Only pairs of the runner's bus. `rules` are the rules that today's files give to this runner.
    """
    gone = [
        pair
        for pair, was in runtime.ledger.assignments().items()
        if was.runner == runner and not was.left and pair[0] not in rules.rules and pair[0] in today.rules
    ]
    buses = {row.bus for row in runtime.ledger.consumer_offsets(runner)} if gone else set()
    return [pair for pair in gone if today.rules[pair[0]].bus in buses]


def kept_rules(
    runtime: Runtime,
    today: RuleSet,
    moved: Iterable[str],
    bus: Bus,
    source: LogSource,
    offsets: Mapping[Partition, int],
) -> KeptRules:
    """Return which of the `moved` rules stay with a runner at `offsets`, and up to which offsets.

    Call it after today's rules came into force: from then on no new runner plans a batch by older rules.
    """
    of_runner: dict[str, set[str]] = {}
    for rule in moved:
        of_runner.setdefault(today.rules[rule].runner, set()).add(rule)
    kept: set[str] = set()
    until = dict(offsets)
    for new, rules in of_runner.items():
        if (
            runtime.ledger.batches(limit=None, runner=new, state="open")
            and runtime.ledger.streaming_lease(new) is not None
        ):
            return KeptRules(frozenset(rules), offsets, must_wait=True)
        ends = _taken_by(runtime, new, bus, source, offsets.keys())
        further = {partition: end for partition, end in ends.items() if end > offsets[partition]}
        if further:
            kept |= rules
            until |= {partition: max(end, until[partition]) for partition, end in further.items()}
    return KeptRules(frozenset(kept), until) if kept else KeptRules()


def lower_bounds(first: Mapping[Partition, int], second: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the lower bound for each partition; each mapping has bounds for some partitions."""
    return {**first, **second} | {
        partition: min(first[partition], second[partition]) for partition in first.keys() & second.keys()
    }


def _taken_by(
    runtime: Runtime, runner: str, bus: Bus, source: LogSource, partitions: Collection[Partition]
) -> dict[Partition, int]:
    """Return the offset up to which a runner has taken each partition, including its batch in progress."""
    rows = [
        row for row in runtime.ledger.consumer_offsets(runner) if row.bus == bus.name and row.partition in partitions
    ]
    existing = set(source.partitions())
    ends = {row.partition: standing_offset(row, bus, source) for row in rows if row.partition in existing}
    batch = runtime.ledger.unfinished_batch(runner)
    for taken in runtime.ledger.ranges(batch.batch_id) if batch is not None else ():
        if taken.partition in ends:
            ends[taken.partition] = max(taken.end, ends[taken.partition])
    return ends
