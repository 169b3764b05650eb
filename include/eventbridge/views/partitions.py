"""Returns a runner's position in each partition of its bus, and how fast events are published and settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from eventbridge.errors import BusError, UserError
from eventbridge.model.partition import Move, Partition
from eventbridge.policy.flow import WINDOW, flow
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.identity import offset_gaps, start_offset
from eventbridge.runtime.runtime import Runtime

#: The maximum number of batches to read: as many as a runner commits within WINDOW if each takes five seconds.
_MAX_BATCHES = 60


@dataclass(frozen=True)
class PartitionStatus:
    """A runner's position in one partition; all numbers count events.

    lag = end - committed, in flight = pulled - committed, available = end - pulled, where pulled is the end of the
    ranges of uncommitted batches. All three are None if `gap` is set. It says why the offsets cannot be compared with
    the log: they were committed on another log, or the bus does not respond.
    """

    runner: str
    bus: str
    partition: Partition
    committed: int
    pulled: int
    end: int
    gap: str
    lag: int | None
    in_flight: int | None
    available: int | None

    @classmethod
    def from_offsets(
        cls, runner: str, bus: str, partition: Partition, *, committed: int, pulled: int, end: int, gap: str
    ) -> PartitionStatus:
        """Return the status of a partition from its offsets."""
        lag, in_flight, available = (None,) * 3 if gap else (end - committed, pulled - committed, end - pulled)
        return cls(runner, bus, partition, committed, pulled, end, gap, lag, in_flight, available)


def partition_statuses(runtime: Runtime, rules: RuleSet, runner: str, bus: str) -> list[PartitionStatus] | None:
    """Return the status of each partition of a runner's bus; None if the runner's group is not registered yet."""
    rows = runtime.ledger.offsets.find(runner)
    if not rows:
        return None
    batch = runtime.ledger.batches.unfinished(runner)
    pulled = {part.partition: part.end for part in runtime.ledger.batches.ranges(batch.batch_id)} if batch else {}
    try:
        with closing(runtime.open_source(rules.buses[bus])) as source:
            gaps = offset_gaps(rules.buses[bus], source, rows)
            ends = source.ends()
    except BusError as error:  # the rest can still be shown
        gaps, ends = {row.partition: str(error) for row in rows}, {}
    named = rules.buses[bus].source.topics
    return [
        PartitionStatus.from_offsets(
            runner,
            bus,
            row.partition,
            committed=row.offset,
            pulled=pulled.get(row.partition, row.offset),
            end=ends.get(row.partition, 0 if row.partition.topic in named else row.offset),
            gap=gaps.get(row.partition, ""),
        )
        for row in rows
    ]


def events_before_first_run(runtime: Runtime, bus: Bus) -> int | None:
    """Return how many events of a bus the first run of a new runner would take, given its `start_at`.

    Returns None if the bus cannot be reached, or is a queue source, which does not report how many messages it holds.
    """
    try:
        with closing(runtime.open_source(bus)) as source:
            return sum(max(0, end - start_offset(bus, source, partition)) for partition, end in source.ends().items())
    except (BusError, UserError):  # the rest can still be shown
        return None


@dataclass(frozen=True)
class PartitionFlow:
    """The flow of one partition for one runner, as `Flow` describes it.

    If `grows`, events are published at least as fast as they can be settled, so the lag never reaches zero.
    """

    runner: str
    bus: str
    partition: Partition
    published: float
    settled: float
    capacity: float | None
    drains_in_seconds: float | None
    grows: bool


def partition_flows(runtime: Runtime, rules: RuleSet, partitions: Sequence[PartitionStatus]) -> Iterator[PartitionFlow]:
    """Yield the flow of each partition whose topic the rules still name and whose offsets are valid on its log.

    Reads the buses and the ledger.
    """
    by_runner: dict[tuple[str, str], list[PartitionStatus]] = defaultdict(list)
    for each in partitions:
        if each.partition.topic in rules.buses[each.bus].source.topics and not each.gap:
            by_runner[each.runner, each.bus].append(each)
    for (runner, bus), group in by_runner.items():
        moves: dict[Partition, list[Move]] = defaultdict(list)
        for move in runtime.ledger.batches.recent_moves(runner, limit=_MAX_BATCHES):
            moves[move.partition].append(move)
        now = runtime.clock()
        with closing(runtime.open_source(rules.buses[bus])) as source:
            existing = set(source.partitions())
            for each in group:
                before = source.offset_at(each.partition, now - WINDOW) if each.partition in existing else each.end
                found = flow(moves[each.partition], max(0, each.end - before), each.end - each.committed, now)
                yield PartitionFlow(runner, bus, each.partition, **vars(found), grows=found.grows)
