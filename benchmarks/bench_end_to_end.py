"""`make bench-end-to-end`: a broker's backlog through Airflow to a file, from the first batch to the last commit.

The demo's services run with the product's own settings. One rule matches every other event of the backlog. For
comparison, the same run also measures landing alone and, to compare machines, a fixed loop in Python. The target's file
shows whether any event was lost or delivered twice.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from benchmarks.bench_site import BUS, Cost, event, measured, site
from benchmarks.bench_sources import BROKERS, Broker, land
from demo.config import RUN_FOLDER, DemoError, new_config, product_settings
from demo.services import Services, orphaned_groups
from rich.console import Console
from rich.table import Table

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.model.batch import Batch
from eventbridge.repair.audit import audit
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import Publisher

#: The minimum number of events a second from the first batch's plan to the last commit.
GOAL = 40_000
AIM = 60_000
#: The aim for the wall time of the whole run, as a multiple of landing alone.
TIMES_AIM = 2.5

_LOOP_TURNS = 20_000_000
_AT_ONCE = 5_000
_STALL_SECONDS = 150.0

STAGES = ("wait", "listen and land", "route", "push", "settle and commit")


@dataclass(frozen=True)
class Passage:
    """When a batch passed each stage: planned, landed, routed, pushed, committed."""

    times: tuple[datetime, ...]


@dataclass(frozen=True)
class Found:
    """What one broker's backlog came to; seconds of wall clock."""

    name: str
    events: int
    passages: Sequence[Passage]
    landing_alone: float
    lost: int
    twice: int
    differences: int
    idle: float  # share of the machine's cores, from the services' start to the last commit

    @property
    def seconds(self) -> float:
        """From the plan of the first batch to the last commit."""
        return (self.passages[-1].times[-1] - self.passages[0].times[0]).total_seconds()

    @property
    def rate(self) -> float:
        """Events that went in, a second."""
        return self.events / self.seconds

    def shares(self) -> list[float]:
        """Return which share of the time each of STAGES took."""
        parts = [0.0] * len(STAGES)
        for before, passage in zip([None, *self.passages], self.passages, strict=False):
            if before is not None:
                parts[0] += (passage.times[0] - before.times[-1]).total_seconds()
            for number, (began, ended) in enumerate(pairwise(passage.times), start=1):
                parts[number] += (ended - began).total_seconds()
        return [part / self.seconds for part in parts]

    @property
    def is_kept(self) -> bool:
        """Whether the goal is reached, and nothing is lost or came twice."""
        return self.rate >= GOAL and not (self.lost or self.twice or self.differences)


def main() -> int:
    """Measure each broker and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=2_000_000, help="number of events in the backlog (default: 2000000)"
    )
    parser.add_argument("--bytes", type=int, default=1024, help="size of an event (default: 1024)")
    parser.add_argument(
        "--alone", type=int, default=500_000, help="number of events for landing alone (default: 500000)"
    )
    parser.add_argument("--sources", nargs="*", default=list(BROKERS), choices=list(BROKERS), help="default: all")
    options = parser.parse_args()
    loop = _loop_seconds()
    try:
        if orphaned_groups(RUN_FOLDER):
            raise DemoError("An environment is already running. Stop it with `make down`.")
        found = [_measure(name, options) for name in options.sources]
    except (DemoError, EventBridgeError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    Console(width=140).print(_table(found))
    print(f"a fixed loop of {_LOOP_TURNS:,} turns takes {loop:.2f} s here")  # noqa: T201
    for each in found:
        _print_goals(each)
    return 0 if all(each.is_kept for each in found) else 1


def _loop_seconds() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(_LOOP_TURNS):
        total += number
    return time.perf_counter() - began


def _measure(name: str, options: argparse.Namespace) -> Found:
    with BROKERS[name]() as broker, tempfile.TemporaryDirectory(dir=".", prefix=".bench-flow-") as made:
        folder = Path(made).absolute()
        rules = folder / "rules"
        rules.mkdir()
        output = folder / "half.jsonl"
        (rules / "flow.yaml").write_text(_rules(broker, output))
        # tasks read connections from Airflow's variables, the command line from the product's
        names = {"EVENTBRIDGE_CONN_BROKER": broker.connection, "AIRFLOW_CONN_BROKER": broker.connection}
        alone = _landing_alone(broker, options)
        services = Services(new_config(RUN_FOLDER, rules_folder=rules, settings=names))
        try:
            passages, differences, idle = _deliver(services, options)
        finally:
            services.stop()
        numbers = Counter(json.loads(line)["id"] for line in output.open())
        return Found(
            name,
            options.events,
            passages,
            landing_alone=alone.wall * options.events / min(options.alone, options.events),
            lost=(options.events + 1) // 2 - len(numbers),
            twice=sum(numbers.values()) - len(numbers),
            differences=differences,
            idle=idle,
        )


def _rules(broker: Broker, output: Path) -> str:
    target = {"type": "file", "path": str(output)}
    rule = {"bus": BUS, "pattern": {"type": ["bench"]}, "targets": {"file": target}}
    return json.dumps({"buses": {BUS: {"source": dict(broker.source)}}, "rules": {"half": rule}})  # JSON is YAML


def _landing_alone(broker: Broker, options: argparse.Namespace) -> Cost:
    """Publish as much as is landed alone, land it, and publish the rest."""
    with site(conn_broker=broker.connection) as installation:
        installation.write_rules(
            {"none": {"log": {"type": "file", "path": str(installation.folder / "log")}}}, source=broker.source
        )
        first = min(options.alone, options.events)
        with (
            closing(installation.open()) as runtime,
            closing(runtime.open_publisher(runtime.rule_set().buses[BUS])) as bus,
        ):
            _publish(bus, range(first), options.bytes)
            cost = measured(partial(land, installation))
            _publish(bus, range(first, options.events), options.bytes)
    return cost


def _publish(bus: Publisher, numbers: range, size: int) -> None:
    for start in range(numbers.start, numbers.stop, _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, numbers.stop))
        bus.publish([(event(number, size, "other" if number % 2 else "bench"), None) for number in some])


def _deliver(services: Services, options: argparse.Namespace) -> tuple[list[Passage], int, float]:
    """Run the services until the backlog is committed; return how its batches passed, differences, how idle cores were.

    Of the reconciliation; and from the first batch to the last commit.
    """
    services.start()
    settings = product_settings(services.config)
    with closing(open_runtime(Settings.from_mapping(settings), connections_from_environment(settings))) as runtime:
        idle = _wait(runtime, services, options.events)
        services.stop()
        audited = audit(runtime)
        batches = [batch for batch in runtime.ledger.batches.find(limit=None) if batch.kind == "normal"]
        return (
            sorted((_passage(runtime, each) for each in batches), key=lambda each: each.times),
            len(audited.differences),
            idle,
        )


def _wait(runtime: Runtime, services: Services, events: int) -> float:
    """Wait until so many events are committed; return which share of the cores was idle since the first batch.

    Raises DemoError where nothing moves.
    """
    moved, seen = time.monotonic(), -1
    before: Counter[str] | None = None
    while (done := _committed(runtime)) < events:
        services.check()
        if before is None and runtime.ledger.batches.find(limit=1):
            before = _core_time()
        if done != seen:
            moved, seen = time.monotonic(), done
        if time.monotonic() - moved > _STALL_SECONDS:
            raise DemoError(
                f"Nothing has been committed for {_STALL_SECONDS:g} s: {done:,} of {events:,} events have been."
            )
        time.sleep(0.5)
    spent = _core_time() - (before or Counter[str]())
    return spent["idle"] / spent.total()


def _core_time() -> Counter[str]:
    """Return what all cores of the machine have spent since it started, in ticks of the kernel: idle and busy."""
    user, nice, system, idle, wait, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return Counter(idle=idle + wait, busy=user + nice + system + sum(rest))


def _committed(runtime: Runtime) -> int:
    return sum(
        sum(file.rows for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"))
        for batch in runtime.ledger.batches.find(limit=None)
        if batch.kind == "normal" and batch.committed_at is not None
    )


def _passage(runtime: Runtime, batch: Batch) -> Passage:
    assert batch.deadline_at is not None
    assert batch.committed_at is not None
    routed = batch.deadline_at - timedelta(seconds=runtime.settings.batch_timeout)
    ended = [
        chunk.ended_at for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id) if chunk.ended_at is not None
    ]
    return Passage((batch.planned_at, _landed_at(runtime, batch), routed, max([routed, *ended]), batch.committed_at))


def _landed_at(runtime: Runtime, batch: Batch) -> datetime:
    """Return when the last file of a batch was written: what workers land says in its rows when they began."""
    folder = Path(unquote(urlsplit(runtime.store.uri).path))
    paths = [
        folder / file.path
        for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")
        if file.path is not None
    ]
    written = [datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in paths]
    return max([batch.planned_at, *written])


def _table(found: Sequence[Found]) -> Table:
    table = Table(title=f"{found[0].events:,} events of a backlog through Airflow, every other one to a file")
    for title in ("source", "s", "events/s", "times landing", "batches", *STAGES, "cores idle"):
        table.add_column(title, justify="left" if title == "source" else "right")
    for each in found:
        shares = [f"{share:.0%}" for share in each.shares()]
        times = f"{each.seconds / each.landing_alone:.1f}"
        table.add_row(
            each.name,
            f"{each.seconds:.1f}",
            f"{each.rate:,.0f}",
            times,
            f"{len(each.passages):,}",
            *shares,
            f"{each.idle:.0%}",
        )
    return table


def _print_goals(found: Found) -> None:
    kept = "met" if found.is_kept else "MISSED"
    audited = f"{found.lost:,} lost, {found.twice:,} twice, {found.differences:,} differences in the reconciliation"
    print(f"goal: {found.name}: at least {GOAL:,} events/s, none lost or twice: {found.rate:,.0f}, {audited}: {kept}")  # noqa: T201
    times = found.seconds / found.landing_alone
    print(f"aim: {found.name}: {AIM:,} events/s, {TIMES_AIM:g} times landing alone: {found.rate:,.0f}, {times:.1f}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
