"""The lines of bench_streaming through a real Airflow, one after the other: `make bench-streaming AIRFLOW=1`.

The services are those of the demo, and the DAG processor has a low CPU priority, as in docker-compose.yaml. CPU time is
that of the task's process and its committer, without its supervisor and Airflow's own. It is not known for a runner in
batch mode, whose tasks are processes that live for about a second.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from benchmarks.bench_site import SIGNED, event
from benchmarks.bench_streaming import Found, Load, cpu_seconds, deliveries, found_of, published, write_rules
from benchmarks.compiled_receiver import CompiledReceiver
from demo.config import new_config, product_settings
from demo.receiver import ADDRESSES
from demo.services import Services

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

#: How long the first run of a runner may take, and its last batch.
_WAIT_SECONDS = 180.0

#: Of the executor, beside one for the streaming task of each streaming runner: for tasks of the line that is measured.
_SPARE_SLOTS = 8
#: Tasks read Airflow's connections, all other processes read EventBridge's.
_CONNECTIONS = {**SIGNED, **{name.replace("EVENTBRIDGE_", "AIRFLOW_"): value for name, value in SIGNED.items()}}
_SETTINGS = {**_CONNECTIONS, "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES, "EVENTBRIDGE_DISK_MIN_FREE_SIZE": "0"}


def through_airflow(receiver: CompiledReceiver, loads: Sequence[Load]) -> list[Found]:
    """Return what came of each load that publishes something, one after the other.

    Loads of one mode and target share a runner: twenty runners are more than Airflow's SQLite bears.
    """
    lines = [load for load in loads if load.rate]
    runners = {_runner(load): load for load in lines}

    def write(folder: Path) -> None:
        write_rules(folder / "rules", receiver, folder / "responses", runners)

    with airflow(write, len(runners)) as runtime:
        return [_measured(runtime, load) for load in lines]


def _runner(load: Load) -> str:
    return f"{load.mode}-{load.target}"


@contextmanager
def airflow(write: Callable[[Path], None], runners: int) -> Iterator[Runtime]:
    """Run the demo's services, with the rule files that `write` makes in `rules` of a new folder, until the block ends.

    Yields the product's runtime beside them.
    """
    folder = Path(tempfile.mkdtemp(prefix="eventbridge-bench-"))
    slots = {"AIRFLOW__CORE__PARALLELISM": str(runners + _SPARE_SLOTS)}
    try:
        write(folder)
        config = new_config(folder / "demo", rules_folder=folder / "rules", settings={**_SETTINGS, **slots})
        services = Services(config, low_priority=["dag-processor"])
        try:
            services.start()
            settings = product_settings(services.config)
            with closing(
                open_runtime(Settings.from_mapping(settings), connections_from_environment(settings))
            ) as runtime:
                yield runtime
        finally:
            services.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(runtime: Runtime, load: Load) -> Found:
    runner = _runner(load)
    earlier = sum(1 for _ in deliveries(runtime, runner))
    with EmbeddedBus(runtime.settings.bus_folder, runner, topics=["events"], partitions=4, clock=runtime.clock) as bus:
        bus.publish([(event(number, 510), None) for number in range(2)])
        _until(f"the first events of {load} are delivered", lambda: _has_begun(runtime, runner))
        process = _process(runtime, runner)
        before = (cpu_seconds(process) if process else 0.0), time.monotonic()
        began = published(bus, load)
        used = (cpu_seconds(process) if process else float("nan")) - before[0]
        cpu = used / (time.monotonic() - before[1])
    wanted = earlier + 2 + -(-int(load.rate * load.seconds) // 2)
    _until(f"{wanted} events of {load} are delivered", lambda: _is_delivered(runtime, runner, wanted))
    return found_of(runtime, runner, load, began, cpu)


def _has_begun(runtime: Runtime, runner: str) -> bool:
    """Return whether the first two events, for which everything was cold, are delivered."""
    batches = runtime.ledger.batches.find(limit=None, runner=runner)
    return any(
        batch.state == "committed" or runtime.ledger.files.list_for_batch(batch.batch_id, "outcome")
        for batch in batches
    )


def _is_delivered(runtime: Runtime, runner: str, wanted: int) -> bool:
    return len(list(deliveries(runtime, runner))) >= wanted and _is_committed(runtime, runner)


def _is_committed(runtime: Runtime, runner: str) -> bool:
    """Return whether nothing of a runner is in progress but an open batch in which nothing came."""
    batch = runtime.ledger.batches.unfinished(runner)
    return batch is None or all(span.end == span.start for span in runtime.ledger.batches.ranges(batch.batch_id))


def _process(runtime: Runtime, runner: str) -> psutil.Process | None:
    lease = runtime.ledger.streaming.lease(runner)
    return None if lease is None else psutil.Process(int(lease.holder.split(":")[1]))


def _until(what: str, reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise RuntimeError(f"Not reached within {_WAIT_SECONDS:g} s: {what}.")
        time.sleep(0.5)
