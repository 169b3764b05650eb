"""`make bench-replay`: the effect of a replay at full speed on live traffic, its speed, and the files that it reads.

Live traffic runs at 30 % of the measured capacity, alone and beside a replay, in alternating rounds, because a
machine's speed changes within minutes. Then an archive is replayed to a file target, with matching on a Spark Connect
server and two concurrent pushes. Then an hour long before the archive is replayed, to count the files listed and read.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from benchmarks.bench_site import BUS, RUNNER, Site, event, measured, measured_together, push_all, site
from rich.console import Console
from rich.table import Table

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_batch, deliver_until_idle
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import read_settled_as
from eventbridge.processes import OLD_NICENESS
from eventbridge.replay.account import account_of
from eventbridge.replay.plan import begin_replay, plan_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.routing.job import Router
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.spark.route import ConnectRouter
from eventbridge.spark.server import SparkConnectServer
from eventbridge.testing.store import CountingStore

#: The minimum share of its throughput that live traffic keeps, and the maximum ratio of its p99.
KEPT_GOAL, P99_GOAL = 0.95, 1.3
#: The minimum number of archived events a second that are read, matched and delivered to a file target, on two cores.
SPEED_GOAL = 40_000.0
#: Live traffic, as a share of the measured capacity.
_LOAD = 0.3

_LIVE, _ARCHIVED = "live", "archived"
_OLD_TYPE = "old"
_SIZE = 512
_PUBLISH_SECONDS = 0.05
_PUSHES = 2
_LAST_SECONDS = 120.0

OpenRouter = Callable[[Runtime], Router]


class Round(NamedTuple):
    """One run of live traffic: deliveries a second, and the seconds from publish to response of each."""

    per_second: float
    took: list[float]


def main() -> int:
    """Measure, print the tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=5_000_000, help="archived events in the speed run (default: 5000000)"
    )
    parser.add_argument(
        "--beside", type=int, default=500_000, help="archived events beside live traffic (default: 500000)"
    )
    parser.add_argument(
        "--capacity", type=int, default=100_000, help="events to measure the capacity with (default: 100000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs alone, and beside a replay (default: 3)")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured time of each run (default: 60)")
    parser.add_argument("--warm", type=float, default=15.0, help="seconds before the measured time (default: 15)")
    parser.add_argument("--router", choices=["spark", "process"], default="spark", help="where events are matched")
    parser.add_argument("--only", choices=["beside", "speed"], help="only one of the two parts (default: both)")
    options = parser.parse_args()
    with ExitStack() as stack:
        open_router: OpenRouter = _in_process
        if options.router == "spark":
            open_router = partial(_on_spark, stack.enter_context(_spark()))
        kept = [_beside(options, open_router)] if options.only != "speed" else []
        kept += _speed(options.events, open_router) if options.only != "beside" else []
    return 0 if all(kept) else 1


@contextmanager
def _spark() -> Iterator[str]:
    """Run a Spark Connect server in a process of its own: who forks must not have talked to one."""
    import pyspark.sql.connect.session  # noqa: F401  # 2 s, which each process would take; tasks are forked with it

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def serve() -> None:
        with SparkConnectServer() as server:
            theirs.send(server.url)
            theirs.recv()

    process = context.Process(target=serve)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


def _in_process(runtime: Runtime) -> Router:
    return InProcessRouter(runtime.store)


def _on_spark(url: str, runtime: Runtime) -> Router:
    return ConnectRouter(url, store=runtime.store)


def _beside(options: argparse.Namespace, open_router: OpenRouter) -> bool:
    with _archived(options.beside, large=False) as installation:
        capacity = measured(partial(_capacity, installation, options.capacity, open_router)).result
        rate = capacity * _LOAD
        each = partial(_round, installation, rate, options.warm, options.seconds, open_router)
        alone, beside = [], []
        for number in range(options.rounds):
            alone.append(each(replaying=False))
            beside.append(each(replaying=True))
            p99s = [_quantile(found[-1].took, 0.99) for found in (alone, beside)]
            print(f"round {number + 1}: p99 {p99s[0]:.2f} s alone, {p99s[1]:.2f} s beside a replay")  # noqa: T201
    table = Table(title=f"live traffic at {_LOAD:.0%} of {capacity:,.0f} events a second, {options.rounds} rounds")
    for title in ("live traffic", "deliveries/s", "p50 s", "p99 s"):
        table.add_column(title, justify="left" if title.startswith("live") else "right")
    for what, found in (("alone", alone), ("beside a replay at full speed", beside)):
        numbers = (_speed_of(found), _quantile(_took(found), 0.5), _quantile(_took(found), 0.99))
        table.add_row(what, f"{numbers[0]:,.1f}", *(f"{number:.2f}" for number in numbers[1:]))
    Console(width=120).print(table)
    share = _speed_of(beside) / _speed_of(alone)
    longer = _quantile(_took(beside), 0.99) / _quantile(_took(alone), 0.99)
    kept = [
        _judged(f"throughput, at least {KEPT_GOAL:.0%}", f"{share:.1%}", kept=share >= KEPT_GOAL),
        _judged(f"p99, at most {P99_GOAL:g} times", f"{longer:.2f}", kept=longer <= P99_GOAL),
    ]
    return all(kept)


def _speed(events: int, open_router: OpenRouter) -> list[bool]:
    with _archived(events, large=True) as installation:
        began = time.perf_counter()
        taken = _replay_all(installation, open_router)
        seconds = time.perf_counter() - began
        if taken != events:
            raise RuntimeError(f"only {taken:,} of {events:,} archived events were delivered")
        files, listed, read = measured(partial(_an_hour, installation)).result
    table = Table(title=f"{events:,} archived events of {_SIZE} bytes to a file target, {_PUSHES} pushes at once")
    for title in ("events/s", "seconds"):
        table.add_column(title, justify="right")
    table.add_row(f"{events / seconds:,.0f}", f"{seconds:.1f}")
    Console(width=120).print(table)
    return [
        _judged(
            f"events a second, at least {SPEED_GOAL:,.0f}",
            f"{events / seconds:,.0f}",
            kept=events / seconds >= SPEED_GOAL,
        ),
        _judged(
            f"of {files:,} archive files of other hours, none is listed or read",
            f"{listed} listed, {read} read",
            kept=listed == read == 0,
        ),
    ]


@contextmanager
def _archived(events: int, *, large: bool) -> Iterator[Site]:
    """Make an installation with so many events in its archive, of which none was delivered yet."""
    with site(large=large) as installation:
        log = {"type": "file", "path": str(installation.folder / "old.jsonl")}
        live = {"type": "file", "path": str(installation.folder / "live.jsonl")}
        rules = {_LIVE: {"target": live}, _ARCHIVED: {"target": log}}
        installation.write_rules(rules, types={_LIVE: ["bench"], _ARCHIVED: ["none"]})
        for first in range(0, events, 500_000):
            count = min(500_000, events - first)
            measured(partial(installation.publish, count, _SIZE, first, _OLD_TYPE))
            measured(partial(_deliver_all, installation))
        installation.write_rules(rules, types={_LIVE: ["bench"], _ARCHIVED: [_OLD_TYPE]})
        yield installation


def _deliver_all(installation: Site) -> None:
    with closing(installation.open()) as runtime:
        deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store))


def _capacity(installation: Site, events: int, open_router: OpenRouter) -> float:
    """Return how many events a second the runner delivers of a backlog."""
    installation.publish(events, _SIZE, 1_000_000_000)
    with closing(installation.open()) as runtime:
        router = open_router(runtime)
        began = time.perf_counter()
        while deliver_batch(runtime, RUNNER, router, Stop()) is not None:
            pass
        return events / (time.perf_counter() - began)


def _round(
    installation: Site, rate: float, warm: float, seconds: float, open_router: OpenRouter, *, replaying: bool
) -> Round:
    """Publish live events until it is warm, and then for so long, and return what became of those."""
    first = time.time_ns() // 1_000 % 1_000_000_000  # ids of its own
    with _running(installation, open_router, replaying=replaying), installation.bus() as bus:
        began, start, published = datetime.now(UTC), time.monotonic(), 0
        while (passed := time.monotonic() - start) < warm + seconds:
            due = math.ceil(passed * rate)
            if due > published:
                bus.publish([(event(first + number, _SIZE), None) for number in range(published, due)])
                published = due
            time.sleep(_PUBLISH_SECONDS)
        end = time.monotonic() + _LAST_SECONDS
        with closing(installation.open()) as runtime:
            while len(found := _heard(runtime, began)) < published:
                if time.monotonic() > end:
                    raise RuntimeError(f"of {published:,} live events {len(found):,} were delivered")
                time.sleep(0.5)
    since = began + timedelta(seconds=warm)
    until = since + timedelta(seconds=seconds)
    took = sorted((responded - at).total_seconds() for at, responded in found if since <= at < until)
    return Round(sum(since <= responded < until for _, responded in found) / seconds, took)


def _heard(runtime: Runtime, began: datetime) -> list[tuple[datetime, datetime]]:
    columns = ["rule", "published_at", "settled_at"]
    found = []
    for batch in runtime.ledger.batches.find(limit=None):
        if batch.kind == "normal" and batch.planned_at >= began:
            for _, table in read_settled_as(runtime, batch.batch_id, ["delivered"], columns):
                rows = table.to_pylist()
                found += [(row["published_at"], row["settled_at"]) for row in rows if row["published_at"] >= began]
    return found


@contextmanager
def _running(installation: Site, open_router: OpenRouter, *, replaying: bool) -> Iterator[None]:
    """Run the runner, and replays one after the other, each in a process, until the block ends."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    bodies = [_run_batches, _run_replays] if replaying else [_run_batches]
    processes = [context.Process(target=body, args=(installation, open_router, stop)) for body in bodies]
    gc.freeze()  # as tasks of Airflow do: no collection, of 0.3 s, looks through what a process began with
    for process in processes:
        process.start()
    gc.unfreeze()
    try:
        yield
    finally:
        stop.set()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the run failed; its error is above")


def _run_batches(installation: Site, open_router: OpenRouter, stop: Any) -> None:
    with closing(installation.open()) as runtime:
        router = open_router(runtime)
        while not stop.is_set():
            if deliver_batch(runtime, RUNNER, router, Stop()) is None:
                stop.wait(0.1)


def _run_replays(installation: Site, open_router: OpenRouter, stop: Any) -> None:
    os.nice(OLD_NICENESS)
    ends = Stop()
    threading.Thread(target=lambda: (stop.wait(), ends.set()), daemon=True).start()
    with closing(installation.open()) as runtime:
        router, turn = open_router(runtime), 0
        while not ends.is_set():
            turn += 1
            deliver_replay(runtime, _begin(runtime, f"{os.getpid()} {turn}"), router, ends)


def _begin(runtime: Runtime, run: str, since: str = "1d", until: str | None = None) -> str:
    request = WrittenReplayRequest(BUS, since=since, until=until, rules=[_ARCHIVED]).read(
        runtime.ledger.now(), runtime.rule_set()
    )
    return begin_replay(runtime, request, run).replay_id


def _replay_all(installation: Site, open_router: OpenRouter) -> int:
    """Replay the whole archive, and return how many deliveries were delivered."""
    with closing(installation.open()) as runtime:
        replay_id, delivered = _begin(runtime, "speed"), 0
        while (batch_id := plan_replay(runtime, replay_id).batch_id) is not None:
            chunks = measured(partial(_route, installation, batch_id, open_router)).result
            pushes = [partial(push_all, installation, batch_id, [chunk]) for chunk in chunks]
            delivered += sum(cost.result for cost in measured_together(pushes, _PUSHES, limit=3_600))
            for stage in (write_dead_letters, schedule_retries, commit):
                stage(runtime, batch_id)
    return delivered


def _route(installation: Site, batch_id: str, open_router: OpenRouter) -> list[int]:
    with closing(installation.open()) as runtime:
        return route(runtime, batch_id, open_router(runtime))


def _an_hour(installation: Site) -> tuple[int, int, int]:
    """Replay an hour before all of the archive; return how many files that has, were listed, and were read."""
    with closing(installation.open()) as opened:
        counting = CountingStore(opened.store)
        runtime = replace(opened, store=counting)
        now = runtime.ledger.now()
        replay_id = _begin(runtime, "an hour", "3h", "2h")
        deliver_replay(runtime, replay_id, InProcessRouter(counting))
        archive = {file.path for file in runtime.ledger.archive.files(BUS, now - timedelta(hours=2), now, now)}
        assert account_of(runtime, runtime.ledger.replays.get(replay_id)).read == 0
        return len(archive), len(archive.intersection(counting.listed)), len(archive.intersection(counting.read))


def _judged(goal: str, found: str, *, kept: bool) -> bool:
    print(f"goal: {goal}: {found}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


def _speed_of(rounds: Sequence[Round]) -> float:
    return sum(each.per_second for each in rounds) / len(rounds)


def _took(rounds: Sequence[Round]) -> list[float]:
    return sorted(took for each in rounds for took in each.took)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


if __name__ == "__main__":
    sys.exit(main())
