"""Waits until the demo has delivered everything that can be delivered, and prints the progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from demo.config import DemoError
from demo.receipts import receiver_path
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import Status, status

#: Paths of the receiver that never accept a delivery: it stays pending or is dead-lettered.
FAILING_PATHS = ("bad", "gone", "hang")

_ALL = 1_000_000
_PRINT_SECONDS = 5.0
_STALL_SECONDS = 150.0


def targets_that_take_all(rules: RuleSet) -> set[tuple[str, str]]:
    """Return the (rule, target) pairs that must get all their deliveries."""
    return {
        (rule.name, target.name)
        for rule in rules.enabled().values()
        for target in rule.targets.values()
        if receiver_path(target).split("/")[1:2] not in ([path] for path in FAILING_PATHS)
    }


@dataclass(frozen=True)
class Progress:
    """The progress of the demo."""

    published: int
    lag: int
    committed: int  # batches
    open: int
    to_retry: int  # pending deliveries of targets that must get all of theirs
    pending: int

    @classmethod
    def of(cls, found: Status, rules: RuleSet, published: int) -> Progress:
        """Return the progress from a status."""
        must = targets_that_take_all(rules)
        waiting = [row for row in found.pending if row.state != "closed"]
        committed = sum(batch.state == "committed" for batch in found.batches)
        return cls(
            published=published,
            lag=sum(partition.lag for partition in found.partitions),
            committed=committed,
            open=len(found.batches) - committed,
            to_retry=sum(row.count for row in waiting if (row.rule, row.target) in must),
            pending=sum(row.count for row in waiting),
        )

    def is_done(self, total: int) -> bool:
        """Return whether everything is published and settled, no batch is open, and no delivery is left to retry."""
        begun = self.committed > 0 or total == 0  # before the first batch no partition, and so no lag, is known
        return begun and self.published == total and self.lag == self.open == self.to_retry == 0

    def __str__(self) -> str:
        return (
            f"published {self.published:>7,}   lag {self.lag:>7,}   batches {self.committed:>3} committed, "
            f"{self.open} open   to retry {self.to_retry:>5,}   pending {self.pending:>6,}"
        )


def watch(
    runtime: Runtime, rules: RuleSet, published: Callable[[], int], total: int, check: Callable[[], None]
) -> Progress:
    """Return once `total` events are published and settled, and all targets that accept deliveries have theirs.

    `check` is called every second and raises an error that ends the demo. Raises DemoError after 150 s without
    progress.
    """
    began = moved = time.monotonic()
    printed = 0.0
    last: Progress | None = None
    while True:
        check()
        now = Progress.of(status(runtime, batches=_ALL), rules, published())
        if now != last:
            moved = time.monotonic()
        done = now.is_done(total)
        if done or time.monotonic() - printed >= _PRINT_SECONDS:
            printed = time.monotonic()
            print(f"  {printed - began:4.0f} s  {now}", flush=True)  # noqa: T201
        if done:
            return now
        if time.monotonic() - moved > _STALL_SECONDS:
            raise DemoError(f"No progress for {_STALL_SECONDS:g} s: {now}")
        last = now
        time.sleep(1)
