"""Where every runner stands: lag, in flight and available per queue, batches, chunks, parked deliveries, targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from eventbridge.ledger.records import Batch, ParkedState, TargetStatus
from eventbridge.queue import Queue
from eventbridge.rule import RuleSet
from eventbridge.stages.workplace import Workplace


@dataclass(frozen=True)
class QueueStatus:
    """One queue as a runner sees it; numbers are events.

    lag = end - committed, in flight = pulled - committed, available = end - pulled,
    where pulled is the end of what an uncommitted batch took.
    """

    runner: str
    bus: str
    queue: Queue
    committed: int
    pulled: int
    end: int

    @property
    def lag(self) -> int:
        """Events not yet settled."""
        return self.end - self.committed

    @property
    def in_flight(self) -> int:
        """Events taken by a batch that is not committed."""
        return self.pulled - self.committed

    @property
    def available(self) -> int:
        """Events no batch has taken."""
        return self.end - self.pulled


@dataclass(frozen=True)
class NewRunner:
    """A runner whose group has not been registered, as it never ran, and where it will start."""

    runner: str
    bus: str
    start_at: str | datetime


@dataclass(frozen=True)
class ParkedStatus:
    """How many deliveries of a target wait in one state for one reason.

    `next_due_at` is when the first of them is due, None if all are held; `held` says what they are held for.
    """

    rule: str
    target: str
    state: ParkedState
    reason: str
    count: int
    next_due_at: datetime | None
    held: str


@dataclass(frozen=True)
class Status:
    """What `eventbridge status` shows."""

    now: datetime
    queues: tuple[QueueStatus, ...]
    unregistered: tuple[NewRunner, ...]
    batches: tuple[Batch, ...]  # newest first
    chunks: Mapping[str, int]  # of batches that are not committed
    parked: tuple[ParkedStatus, ...]
    targets: tuple[TargetStatus, ...]  # those that are not ok


def status(work: Workplace, *, batches: int = 10) -> Status:
    """Return how all runners of today's rule files stand, with the newest batches; asks the buses, changes nothing."""
    rules = work.rule_set()
    queues: list[QueueStatus] = []
    unregistered = []
    for runner, bus in sorted(rules.runners().items()):
        found = queue_statuses(work, rules, runner, bus)
        if found is None:
            unregistered.append(NewRunner(runner, bus, rules.buses[bus].source.start_at))
        else:
            queues += found
    return Status(
        now=work.clock(),
        queues=tuple(queues),
        unregistered=tuple(unregistered),
        batches=tuple(work.ledger.batches(limit=batches)),
        chunks=work.ledger.chunk_counts(),
        parked=tuple(parked_statuses(work)),
        targets=tuple(each for each in work.ledger.target_statuses().values() if each.state != "ok"),
    )


def queue_statuses(work: Workplace, rules: RuleSet, runner: str, bus: str) -> list[QueueStatus] | None:
    """Return how each queue of a runner's bus stands; None before the runner's group was registered."""
    committed = work.ledger.committed_offsets(runner)
    if not committed:
        return None
    batch = work.ledger.unfinished_batch(runner)
    pulled = {part.queue: part.end for part in work.ledger.ranges(batch.batch_id)} if batch else {}
    source = work.open_source(rules.buses[bus])
    try:
        ends = {queue: source.end(queue) for queue in source.queues()}
    finally:
        source.close()
    return [
        QueueStatus(runner, bus, queue, offset, pulled.get(queue, offset), ends.get(queue, offset))
        for queue, offset in sorted(committed.items())
    ]


def parked_statuses(work: Workplace) -> list[ParkedStatus]:
    """Return what waits, taken by a batch or not, by rule, target, state and reason."""
    held_for: dict[tuple[str, str], set[str]] = defaultdict(set)
    for waiting in work.ledger.waiting_targets():
        if waiting.state == "held":
            held_for[waiting.rule, waiting.target].add(waiting.held)
    return [
        ParkedStatus(
            row.rule,
            row.target,
            row.state,
            row.reason,
            row.count,
            next_due_at=row.next_due_at if row.state == "due" else None,
            held=", ".join(sorted(held_for[row.rule, row.target])) if row.state == "held" else "",
        )
        for row in work.ledger.parked_counts()
    ]
