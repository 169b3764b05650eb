"""`make bench-batch`: CPU time and memory of the stages of one large batch.

The first batch has many events, every other one of which is delivered once. The second has fewer events, each of which
is delivered to twenty targets. All targets are files. Each stage, and the push of each chunk, is a separate process, as
a task is, so that peak memory is measured for each. Route matches in its process, without Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

from benchmarks.bench_site import RUNNER, Cost, Site, measured, push_all, settled, site
from rich.console import Console
from rich.table import Table

from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.task import InProcessRouter

#: The maximum CPU of a delivery from settlement to commit, in microseconds.
SETTLE_GOAL = 2.0
#: The maximum CPU of an event of the first batch from buffer to commit, in microseconds.
EVENT_GOAL = 30.0
#: The maximum memory of a stage, in MiB.
MEMORY_GOAL = 600.0

_SIZE = 1024
_TARGETS = 20

_SETTLING = ("write_dead_letters", "schedule_retries", "commit")


class Batch(NamedTuple):
    """What is published, and how many targets each event goes to that is delivered at all."""

    what: str
    events: int
    deliveries: int
    targets: int
    kind: Callable[[int], str]


def main() -> int:
    """Measure both batches and print their tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=500_000, help="number of events in the first batch (default: 500000)"
    )
    parser.add_argument(
        "--fanned", type=int, default=50_000, help="number of events in the second batch (default: 50000)"
    )
    options = parser.parse_args()
    events, fanned = options.events, options.fanned
    batches = [
        Batch("every other event delivered once", events, events // 2, 1, lambda n: "bench" if n % 2 else "other"),
        Batch(f"{_TARGETS} targets each", fanned, fanned * _TARGETS, _TARGETS, lambda _n: "bench"),
    ]
    kept = [_judged(batch, _stages(batch), first=batch is batches[0]) for batch in batches]
    return 0 if all(kept) else 1


def _stages(batch: Batch) -> dict[str, Cost]:
    """Run one batch, and return what each stage cost."""
    with site() as installation:
        files = {
            f"rule-{n}": {"type": "file", "path": str(installation.folder / f"{n}.jsonl")} for n in range(batch.targets)
        }
        installation.write_rules({name: {"target": target} for name, target in files.items()})
        measured(partial(installation.publish, batch.events, _SIZE, kind=batch.kind))
        costs = {"listen": measured(partial(_listen, installation))}
        batch_id = costs["listen"].result
        costs["buffer"] = measured(partial(_buffer, installation, batch_id))
        costs["route"] = measured(partial(_route, installation, batch_id))
        pushes = [measured(partial(push_all, installation, batch_id, [chunk])) for chunk in costs["route"].result]
        costs["push"] = Cost(
            sum(cost.wall for cost in pushes), sum(cost.cpu for cost in pushes), max(cost.peak_mib for cost in pushes)
        )
        delivered = sum(cost.result for cost in pushes)
        if delivered != batch.deliveries:
            raise RuntimeError(f"only {delivered:,} of {batch.deliveries:,} were delivered")
        return costs | settled(installation, batch_id)


def _listen(installation: Site) -> str:
    with closing(installation.open()) as runtime:
        batch_id = listen(runtime, RUNNER)
        assert batch_id is not None, "events were published"
        return batch_id


def _buffer(installation: Site, batch_id: str) -> None:
    with closing(installation.open()) as runtime:
        buffer(runtime, batch_id)


def _route(installation: Site, batch_id: str) -> list[int]:
    with closing(installation.open()) as runtime:
        return route(runtime, batch_id, InProcessRouter(runtime.store))


def _judged(batch: Batch, costs: Mapping[str, Cost], *, first: bool) -> bool:
    """Print the table of a batch and its goals, and return whether all are kept."""
    table = Table(title=f"{batch.events:,} events of {_SIZE:,} bytes, {batch.deliveries:,} deliveries: {batch.what}")
    for title in ("stage", "CPU s", "wall s", "CPU us an event", "CPU us a delivery", "peak MiB"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for stage, cost in costs.items():
        table.add_row(stage, *_numbers(batch, cost))
    settling = _sum(costs, _SETTLING)
    after_listen = _sum(costs, [stage for stage in costs if stage != "listen"])
    table.add_section()
    table.add_row("settle to commit", *_numbers(batch, settling))
    table.add_row("buffer to commit", *_numbers(batch, after_listen))
    Console(width=120).print(table)
    goals: list[tuple[str, float, float]] = [
        ("settle to commit, us of CPU a delivery", settling.cpu / batch.deliveries * 1e6, SETTLE_GOAL),
        ("peak of a stage, MiB", max(cost.peak_mib for cost in costs.values()), MEMORY_GOAL),
    ]
    if first:
        goals.append(("buffer to commit, us of CPU an event", after_listen.cpu / batch.events * 1e6, EVENT_GOAL))
    for what, found, most in goals:
        print(f"goal: {what}: at most {most:g}: {found:.1f}: {'met' if found <= most else 'MISSED'}")  # noqa: T201
    print()  # noqa: T201
    return all(found <= most for _, found, most in goals)


def _sum(costs: Mapping[str, Cost], stages: Iterable[str]) -> Cost:
    found = [costs[stage] for stage in stages]
    return Cost(sum(cost.wall for cost in found), sum(cost.cpu for cost in found), max(cost.peak_mib for cost in found))


def _numbers(batch: Batch, cost: Cost) -> tuple[str, ...]:
    each = (cost.cpu / batch.events * 1e6, cost.cpu / batch.deliveries * 1e6)
    return f"{cost.cpu:.2f}", f"{cost.wall:.2f}", *(f"{number:,.2f}" for number in each), f"{cost.peak_mib:.0f}"


if __name__ == "__main__":
    sys.exit(main())
