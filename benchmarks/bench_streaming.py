"""`make bench-streaming`: latency in streaming and batch mode, and a runner's CPU time, batches and files.

Each line is a separate runner, for which events of 510 bytes are published at a steady rate; half of them match. The
latency of a delivery is measured from when the bus has its event to the target's response. `eventbridge deliver` runs
as a separate process, and its CPU time includes its children's. Lines of batch mode call the stages in a loop, batch by
batch. A line with a handover is in streaming mode, and a second process takes over the runner after a third of the
time. Airflow is used by no line or, with --airflow, by all (see bench_streaming_airflow).
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from benchmarks.bench_site import RUNNER, Site, event, site
from benchmarks.compiled_receiver import CompiledReceiver, NoCompiler, compiled_receiver
from rich.console import Console
from rich.table import Table

from eventbridge.pipeline.deliver import deliver_batch, deliver_until_idle
from eventbridge.pipeline.settle.settlement import read_settled_as
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.sources.embedded.bus import EmbeddedBus

_SIZE = 510
_DAY = 86_400.0
#: How long a runner may take to start, and to finish after the last event.
_WAIT_SECONDS = 60.0
#: How long streaming mode is given to read the last event, before it is stopped, which closes its batch.
_LAST_SECONDS = 2.0
#: The interval between two publishes.
_TICK_SECONDS = 0.002


@dataclass(frozen=True)
class Load:
    """One line: what is published, to which target, in which mode."""

    mode: str
    target: str
    rate: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """What came of a load; times in milliseconds, CPU as a share of a core, batches and files a day."""

    load: Load
    took: Sequence[float]
    cpu: float
    batches: float
    files: float
    differences: int

    def quantile(self, share: float) -> float:
        """Return so many milliseconds from publish to delivered; nan without deliveries."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def main() -> int:
    """Measure, print the table and the goals; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="*", default=[1, 100, 1000, 3000, 9000], help="events a second")
    parser.add_argument("--targets", nargs="*", default=["http", "file"], choices=["http", "file"])
    modes = ["streaming", "change", "batch"]
    parser.add_argument("--modes", nargs="*", default=modes, choices=modes)
    parser.add_argument("--seconds", type=float, default=21.0, help="duration of each load (default: 21)")
    parser.add_argument(
        "--slow",
        type=float,
        default=65.0,
        help="duration of loads below 10 events a second, and of idle ones (default: 65)",
    )
    parser.add_argument("--airflow", action="store_true", help="use a real Airflow, without handovers")
    options = parser.parse_args()
    loads = list(_loads(options))
    try:
        with compiled_receiver() as receiver:
            if options.airflow:
                from benchmarks.bench_streaming_airflow import through_airflow

                found = through_airflow(receiver, [load for load in loads if load.mode != "change"])
            else:
                found = [_measured(receiver, load) for load in loads]
    except NoCompiler as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return _report(found, "through Airflow" if options.airflow else "without Airflow")


def _loads(options: argparse.Namespace) -> Iterator[Load]:
    if "streaming" in options.modes:
        yield Load("streaming", "http", 0, options.slow)
    for target in options.targets:
        for rate in options.rates:
            for mode in options.modes:
                if mode == "batch" and (target != "http" or rate > 1000):
                    continue  # its latency is that of a batch, whatever the target
                if mode == "change" and (target != "http" or rate not in (100, 1000)):
                    continue
                quiet = rate < 10 and mode == "streaming"
                if quiet and target != "http":
                    continue
                yield Load(mode, target, rate, options.slow if quiet else options.seconds)


def _measured(receiver: CompiledReceiver, load: Load) -> Found:
    with site(large=False) as installation:
        write_rules(installation.folder / "rules", receiver, installation.folder / "responses", {RUNNER: load})
        installation.publish(2, _SIZE)  # the first event of a process takes seconds; it is not counted
        with _running(installation, load.mode) as process, closing(installation.open()) as runtime:
            _until(lambda: _is_warm(runtime, load.mode))
            before = cpu_seconds(process), time.monotonic()
            with installation.bus() as bus, _changing(installation, load):
                began = published(bus, load)
                if load.mode == "change":
                    time.sleep(_LAST_SECONDS)
            share = (cpu_seconds(process) - before[0]) / (time.monotonic() - before[1])
            if load.mode == "streaming":
                time.sleep(_LAST_SECONDS)
            elif load.mode == "batch":
                _until(lambda: _is_done(runtime, load))
        with closing(installation.open()) as runtime:
            # What the runner left, unread or to be tried again, comes late; that none is lost is seen then.
            deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store))
            return found_of(runtime, RUNNER, load, began, share)


def write_rules(folder: Path, receiver: CompiledReceiver, files: Path, runners: dict[str, Load]) -> None:
    """Write rule files with a bus, a runner and a rule for each load."""
    for runner, load in runners.items():
        mode = "batch" if load.mode == "batch" else "streaming"
        http = f'{{type: http, url: "{receiver.url("/ok/" + runner)}", allow_http: true, connection: signed}}'
        target = http if load.target == "http" else f'{{type: file, path: "{files / runner}.jsonl"}}'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{runner}.yaml").write_text(
            f"buses: {{{runner}: {{source: "
            "{type: embedded, start_at: earliest, partitions: 4, topics: [events]}}}\n"
            f"runners: {{{runner}: {{mode: {mode}}}}}\n"
            f"rules: {{{runner}: {{bus: {runner}, pattern: {{type: [bench]}}, targets: {{one: {target}}}}}}}\n"
        )


@contextmanager
def _running(installation: Site, mode: str) -> Iterator[psutil.Process]:
    """Deliver until the block ends, and a little longer: what is read gets a response, and the last batch closed."""
    program = [str(Path(sys.executable).with_name("eventbridge")), "deliver", "--runner", RUNNER, "--streaming"]
    if mode == "batch":
        program = [sys.executable, "-m", "benchmarks.bench_streaming_batches"]
    child = subprocess.Popen(program, env=os.environ | installation.environ(), stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(child.pid)
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_WAIT_SECONDS)
        finally:
            child.kill()


@contextmanager
def _changing(installation: Site, load: Load) -> Iterator[None]:
    """In a line of a change, have a second process take the runner over after a third of the load."""
    if load.mode != "change":
        yield
        return
    program = [str(Path(sys.executable).with_name("eventbridge")), "deliver", "--runner", RUNNER, "--streaming"]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [*program, "--take-over"]
        started.append(subprocess.Popen(command, env=os.environ | installation.environ(), stdout=subprocess.DEVNULL))

    timer = threading.Timer(load.seconds / 3, start)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        for child in started:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_WAIT_SECONDS)
            finally:
                child.kill()


def deliver_in_stages(installation: Runtime, stop: Stop) -> None:
    """Deliver batch after batch, as runs of the DAG would."""
    while not stop.is_set():
        if deliver_batch(installation, RUNNER, InProcessRouter(installation.store), stop) is None:
            stop.wait(0.1)


def _is_warm(runtime: Runtime, mode: str) -> bool:
    if mode == "batch":
        return bool(runtime.ledger.batches.find(state="committed"))
    return any(
        runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")
        for batch in runtime.ledger.batches.find(state="open")
    )


def _is_done(runtime: Runtime, load: Load) -> bool:
    wanted = 2 + int(load.rate * load.seconds) // 2
    return len(list(deliveries(runtime, RUNNER))) >= wanted and runtime.ledger.batches.unfinished(RUNNER) is None


def published(bus: EmbeddedBus, load: Load) -> datetime:
    """Publish a load at its rate, half of it of a type that matches, and return when that began."""
    began, start, sent = datetime.now(UTC), time.monotonic(), 0
    total = int(load.rate * load.seconds)
    while sent < total or time.monotonic() - start < load.seconds:
        due = min(total, int((time.monotonic() - start) * load.rate) + 1) if total else 0
        if due > sent:
            kinds = ("bench", "other")
            bus.publish([(event(2 + n, _SIZE, kinds[n % 2]), None) for n in range(sent, due)])
            sent = due
        time.sleep(max(0.0, min(_TICK_SECONDS if total else 1.0, start + load.seconds - time.monotonic())))
    return began


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its descendants, those that have ended among them."""
    total = 0.0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:  # it was taken over, and has ended
        return float("nan")
    for each in family:
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return float(total)


def deliveries(runtime: Runtime, runner: str) -> Iterator[tuple[datetime, datetime]]:
    """Yield when each event that was delivered was published, and when it got a response."""
    for batch in runtime.ledger.batches.find(limit=None, runner=runner):
        for _, table in read_settled_as(runtime, batch.batch_id, ["delivered"], ["published_at", "settled_at"]):
            for row in table.to_pylist():
                yield row["published_at"], row["settled_at"]


def found_of(runtime: Runtime, runner: str, load: Load, began: datetime, cpu: float) -> Found:
    """Return what came of a load that is reconciled; raises RuntimeError if an event was not delivered."""
    heard = [(late - early).total_seconds() * 1e3 for early, late in deliveries(runtime, runner) if early >= began]
    wanted = -(-int(load.rate * load.seconds) // 2)
    if len(heard) != wanted:
        raise RuntimeError(f"{load}: {len(heard)} of {wanted} events were delivered")
    counted = sorted(
        (batch for batch in runtime.ledger.batches.find(limit=None, runner=runner) if batch.planned_at >= began),
        key=lambda batch: batch.planned_at,
    )
    whole, seconds = counted, load.seconds
    if len(counted) > 1:  # the last one is cut short by the end of the load
        whole, seconds = counted[:-1], (counted[-1].planned_at - counted[0].planned_at).total_seconds()
    batches = len(whole) * _DAY / seconds
    files = sum(_files(runtime, batch.batch_id) for batch in whole) * _DAY / seconds
    return Found(load, heard, cpu, batches, files, len(audit(runtime).differences))


def _files(runtime: Runtime, batch_id: str) -> int:
    """Return how many files a batch left in the store, by their names."""
    root = Path(runtime.settings.store_uri.removeprefix("file://"))
    return sum(1 for path in root.rglob("*") if batch_id in str(path) and path.is_file())


def _until(reached: Any) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise RuntimeError("the runner does not deliver")
        time.sleep(0.2)


def _report(found: Sequence[Found], where: str) -> int:
    load = os.getloadavg()[0]
    table = Table(
        title=f"events of {_SIZE} bytes in 4 partitions, half of them match, {where}; load {load:.1f} at the end"
    )
    for title in (
        "mode",
        "target",
        "events/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "CPU of a core",
        "batches/day",
        "files/day",
    ):
        table.add_column(title, justify="left" if title in ("mode", "target") else "right")
    for each in found:
        times = [f"{each.quantile(share):,.1f}" if each.took else "-" for share in (0.5, 0.99, 1.0)]
        rate = f"{each.load.rate:,.0f}" if each.load.rate else "idle"
        counts = f"{each.batches:,.0f}", f"{each.files:,.0f}"
        cpu = "-" if math.isnan(each.cpu) else f"{each.cpu:.1%}"
        table.add_row(each.load.mode, each.load.target, rate, *times, cpu, *counts)
    Console(width=120).print(table)
    goals = [goal for each in found for goal in goals_of(each)]
    for what, reached, most in goals:
        print(f"goal: {what} at most {most:,g}: {reached:,.3g}: {'met' if reached <= most else 'MISSED'}")  # noqa: T201
    return 0 if all(reached <= most for _, reached, most in goals) else 1


def goals_of(found: Found) -> Iterator[tuple[str, float, float]]:
    """Yield the goals of a line of streaming mode: what, what was reached, at most what."""
    load = found.load
    yield f"{load.mode}, {load.target}, {load.rate:,.0f}/s: differences of the audit", found.differences, 0
    if load.mode == "change":
        yield f"handover, {load.rate:,.0f}/s: latest response, ms", found.quantile(1.0), 300
    if load.mode != "streaming":
        return
    name = f"streaming, {load.target}, {load.rate:,.0f}/s" if load.rate else "streaming, idle"
    if load.rate:
        small = load.rate <= 1000
        if small or load.rate >= 9000:
            yield f"{name}: p50 ms", found.quantile(0.5), 10 if small else 40
            yield f"{name}: p99 ms", found.quantile(0.99), 50 if small else 250
    if load.rate in (0, 100):
        yield f"{name}: CPU, % of a core", found.cpu * 100, 12 if load.rate else 3
    if load.rate < 2000:
        few = load.rate <= 1
        yield f"{name}: batches a day", found.batches, 2_000 if few else 9_000
        yield f"{name}: files a day", found.files, 40_000 if few else 200_000


if __name__ == "__main__":
    sys.exit(main())
