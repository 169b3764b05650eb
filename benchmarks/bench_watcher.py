"""`make bench-watcher`: the cost of finding due deliveries while none, a thousand, and a million rows are due.

The watcher polls five times a second, so its cost must not grow with what is due. Each row of the ledger may represent
thousands of deliveries. `well`: all targets accept deliveries. `dead`: most rows belong to a target whose breaker is
open, and have been due longest: all of them are due, but none of them starts a run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta

from benchmarks.bench_site import site
from rich.console import Console
from rich.table import Table

from eventbridge.airflow.watch import Watch
from eventbridge.model.pending import PendingDeliveries
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import pending_rows
from eventbridge.policy.breaker import Count, Tally
from eventbridge.runtime.runtime import Runtime

#: The maximum cost of a look with everything due: a multiple of one with nothing due, plus milliseconds.
COST_GOAL, COST_SLACK_MS = 2.0, 1.0

_TARGETS = 20
_DEAD = "rule-0"
_CHECKS = 200
_AT_ONCE = 10_000


@dataclass
class _Costs:
    """Medians in milliseconds of CPU, one for each number of due rows."""

    looks: list[float] = field(default_factory=list)
    queries: list[float] = field(default_factory=list)

    def columns(self) -> tuple[list[float], ...]:
        return self.looks, self.queries


def main() -> int:
    """Measure, print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--due", type=int, default=1_000_000, help="number of due rows in the ledger (default: 1000000)"
    )
    counts = [0, 1_000, parser.parse_args().due]
    table = Table(title=f"milliseconds of CPU, median of {_CHECKS}; beside it the ratio to nothing due")
    for title in ("target", "rows due", "watcher's look", "", "due targets", ""):
        table.add_column(title, justify="right")
    kept = [_measure(case, counts, table) for case in ("well", "dead")]  # both, whatever the first one shows
    Console(width=120).print(table)
    goal = f"with {counts[-1]:,} due at most {COST_GOAL:g} times what it costs with none, and {COST_SLACK_MS:g} ms"
    print(f"goal: {goal}: {'met' if all(kept) else 'MISSED'}")  # noqa: T201
    return 0 if all(kept) else 1


def _measure(case: str, counts: list[int], table: Table) -> bool:
    costs = _Costs()
    with site() as installation:
        batch_id = installation.routed_once(_TARGETS)
        with closing(installation.open()) as runtime:
            watch = Watch(runtime)
            write_dead_letters(runtime, batch_id)
            (sample, *_) = pending_rows(runtime, runtime.ledger.batches.get(batch_id))
            for done, count in zip([0, *counts], counts, strict=False):
                _add_pending_due(runtime, case, sample, done, count)
                if case == "dead":
                    _open_breaker(runtime)
                now = runtime.ledger.now()
                costs.looks.append(_median_ms(watch.check))
                costs.queries.append(_median_ms(lambda at=now: runtime.ledger.due.targets(at)))
                pairs = [(f"{each[-1]:.2f}", f"{each[-1] / each[0]:.2f}") for each in costs.columns()]
                table.add_row(case, f"{count:,}", *(text for pair in pairs for text in pair))
    return all(each[-1] <= COST_GOAL * each[0] + COST_SLACK_MS for each in costs.columns())


def _add_pending_due(runtime: Runtime, case: str, sample: PendingDeliveries, first: int, end: int) -> None:
    """Add pending rows that are due; where a target is dead, nine of ten are its, and the oldest."""
    now = runtime.ledger.now()
    for start in range(first, end, _AT_ONCE):
        rows = []
        for number in range(start, min(start + _AT_ONCE, end)):
            dead = case == "dead" and number % 10
            due_at = now - timedelta(hours=2 if dead else 1, microseconds=number)
            rule = _DEAD if dead else f"rule-{number % _TARGETS}"
            rows.append(replace(sample, settlement=number + 1, rule=rule, due_at=due_at))
        runtime.ledger.pending.add(rows)


def _open_breaker(runtime: Runtime) -> None:
    second = int(runtime.ledger.now().timestamp())
    runtime.ledger.targets.record_attempts([Tally(_DEAD, "target", {second: Count(100, 100)})])


def _median_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_CHECKS):
        began = time.thread_time()  # of CPU: the machine may be busy with something else
        call()
        times.append((time.thread_time() - began) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
