"""Shared flushes: which targets are flushed together, which learn of a loss, and which a hanging disk blocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from unit.delivery.test_by_block import Bench, blocks_of_rows, deliveries

from eventbridge.delivery.by_block import BlockDeliveries
from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.threads import SharedFlushes, Threads
from eventbridge.testing.targets import InMemoryBlockTarget


class OnDisk(InMemoryBlockTarget):
    """A target on a disk, which is `flushed` together with others on it."""

    def __init__(self, disk: str, flushed: Callable[[str, int], list[str | None]]) -> None:
        super().__init__()
        self.disk = disk
        self.flushed = flushed

    @staticmethod
    def flush_together(targets: Sequence[OnDisk]) -> list[str | None]:
        return targets[0].flushed(targets[0].disk, len(targets))


def runs_on(*disks: str, flushed: Callable[[str, int], list[str | None]]) -> list[tuple[Bench, TargetRun]]:
    found = []
    for disk in disks:
        bench = Bench(OnDisk(disk, flushed))
        found.append((bench, TargetRun(bench.settings(), BlockDeliveries(blocks_of_rows(deliveries(2)) or []))))
    return found


def until_ended(threads: Threads, runs: Sequence[TargetRun]) -> None:
    end = time.monotonic() + 30
    while not all(run.has_ended for run in runs):
        assert time.monotonic() < end
        threads.poll()
        threading.Event().wait(0.001)


def test_targets_of_one_disk_are_flushed_together_and_each_hears_what_it_lost() -> None:
    """A response counts only once the flush is over; what was lost is tried again by its own run."""
    flushes = SharedFlushes()
    asked: list[int] = []

    def flushed(_: str, count: int) -> list[str | None]:
        asked.append(count)
        assert not any(len(bench.rows) for bench, _ in found)
        return [None, "the disk is gone", None]

    found = runs_on("a", "a", "a", flushed=flushed)
    threads = Threads("test", 4, first=1, spare=flushes)
    threads.add_all(flushes.job(run) for _, run in found)
    until_ended(threads, [run for _, run in found])

    assert asked == [3]
    assert [[row["outcome"] for row in bench.written()] for bench, _ in found] == [
        ["delivered"] * 2,
        ["retry_scheduled"] * 2,
        ["delivered"] * 2,
    ]


def test_a_disk_that_hangs_holds_up_no_other_disk() -> None:
    """The threads that wait make room for one that works."""
    flushes, resumed = SharedFlushes(), threading.Event()

    def flushed(disk: str, count: int) -> list[str | None]:
        assert disk == "good" or resumed.wait(30)
        return [None] * count

    runs = [run for _, run in runs_on("bad", "good", "good", flushed=flushed)]
    threads = Threads("test", 4, first=1, spare=flushes)
    threads.add_all(map(flushes.job, runs))
    until_ended(threads, runs[1:])
    assert not runs[0].has_ended
    resumed.set()
    until_ended(threads, runs)

    assert [run.report.delivered for run in runs] == [2, 2, 2]


def test_a_flush_that_breaks_ends_the_runs_that_asked_for_it() -> None:
    """Each run has the error, with which the push fails, and no run waits forever."""

    def flushed(_: str, _count: int) -> list[str | None]:
        raise ValueError("an error of ours")

    flushes = SharedFlushes()
    runs = [run for _, run in runs_on("a", "a", flushed=flushed)]
    threads = Threads("test", 1, spare=flushes)
    threads.add_all(map(flushes.job, runs))
    until_ended(threads, runs)

    assert [str(run.report.crashed) for run in runs] == ["an error of ours"] * 2
