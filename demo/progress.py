"""Watches the demo until everything that can be delivered is, and says every few seconds how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from demo.places import DemoError
from demo.receipts import receiver_path
from eventbridge.rule import RuleSet
from eventbridge.stages.operate.status import Status, status
from eventbridge.stages.runtime.runtime import Runtime

#: Paths of the receiver that never take a delivery: what is for them stays pending or is dead-lettered.
NEVER = ("bad", "gone", "hang")

_ALL = 1_000_000
_SAY_SECONDS = 5.0
_STALL_SECONDS = 150.0


def takes_all(rules: RuleSet) -> set[tuple[str, str]]:
    """Return the (rule, target) pairs that must have everything in the end."""
    return {
        (rule.name, target.name)
        for rule in rules.enabled().values()
        for target in rule.targets.values()
        if receiver_path(target).split("/")[1:2] not in ([path] for path in NEVER)
    }


@dataclass(frozen=True)
class Progress:
    """How far the demo is."""

    published: int
    lag: int
    committed: int  # batches
    open: int
    to_come: int  # pending deliveries of targets that must have everything
    pending: int

    @classmethod
    def of(cls, found: Status, rules: RuleSet, published: int) -> Progress:
        """Read the progress out of a status."""
        must = takes_all(rules)
        waiting = [row for row in found.pending if row.state != "closed"]
        committed = sum(batch.state == "committed" for batch in found.batches)
        return cls(
            published=published,
            lag=sum(partition.lag for partition in found.partitions),
            committed=committed,
            open=len(found.batches) - committed,
            to_come=sum(row.count for row in waiting if (row.rule, row.target) in must),
            pending=sum(row.count for row in waiting),
        )

    def done(self, total: int) -> bool:
        """Say whether all is published and settled, no batch is open, and who can take deliveries has all of theirs."""
        begun = self.committed > 0 or total == 0  # before the first batch nobody knows of a partition, and of its lag
        return begun and self.published == total and self.lag == self.open == self.to_come == 0

    def __str__(self) -> str:
        return (
            f"published {self.published:>7,}   lag {self.lag:>7,}   batches {self.committed:>3} committed, "
            f"{self.open} open   to come again {self.to_come:>5,}   pending {self.pending:>6,}"
        )


def watch(
    runtime: Runtime, rules: RuleSet, published: Callable[[], int], total: int, check: Callable[[], None]
) -> Progress:
    """Return once `total` events are published and settled and the targets that can take theirs have them.

    `check` is called every second and raises where going on is no use. Raises DemoError after 150 s without progress.
    """
    began = moved = time.monotonic()
    said = 0.0
    last: Progress | None = None
    while True:
        check()
        now = Progress.of(status(runtime, batches=_ALL), rules, published())
        if now != last:
            moved = time.monotonic()
        done = now.done(total)
        if done or time.monotonic() - said >= _SAY_SECONDS:
            said = time.monotonic()
            print(f"  {said - began:4.0f} s  {now}", flush=True)  # noqa: T201
        if done:
            return now
        if time.monotonic() - moved > _STALL_SECONDS:
            raise DemoError(f"Nothing has moved for {_STALL_SECONDS:g} s: {now}")
        last = now
        time.sleep(1)
