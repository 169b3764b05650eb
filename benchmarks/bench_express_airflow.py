"""The lines of bench_express through a real Airflow, one after the other: `make bench-express AIRFLOW=1`.

The services are those of the demo. CPU time is that of the task's process and its closer, without its supervisor and
Airflow's own; of a staged runner, whose tasks are processes of a second, it is not known.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from benchmarks.bench_express import Found, Load, cpu_seconds, deliveries, found_of, published, write_rules
from benchmarks.bench_site import SIGNED, event
from benchmarks.compiled_receiver import CompiledReceiver
from demo.places import fresh, product_settings
from demo.services import Services

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.testing.receiver import ADDRESSES

#: How long the first run of a runner may take, and its last window.
_WAIT_SECONDS = 180.0
_SETTINGS = {**SIGNED, "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES, "EVENTBRIDGE_DISK_FREE_MIN_BYTES": "0"}


def through_airflow(receiver: CompiledReceiver, loads: Sequence[Load]) -> list[Found]:
    """Return what came of each load that publishes something; a runner has one of them to itself."""
    runners = {f"line-{number}": load for number, load in enumerate(loads) if load.rate}
    with _running(receiver, runners) as work:
        return [_measured(work, runner, load) for runner, load in runners.items()]


@contextmanager
def _running(receiver: CompiledReceiver, runners: dict[str, Load]) -> Iterator[Runtime]:
    folder = Path(tempfile.mkdtemp(prefix="eventbridge-bench-"))
    try:
        write_rules(folder / "rules", receiver, folder / "answers", runners)
        services = Services(fresh(folder / "demo", rules_folder=folder / "rules", settings=_SETTINGS))
        try:
            services.start()
            settings = product_settings(services.places)
            with closing(Runtime.open(Settings.from_mapping(settings), connections_from_environment(settings))) as work:
                yield work
        finally:
            services.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(work: Runtime, runner: str, load: Load) -> Found:
    with EmbeddedBus(work.settings.bus_folder, runner, topics=["events"], queues=4, clock=work.clock) as bus:
        bus.publish([(event(number, 510), None) for number in range(2)])
        _until(lambda: _has_begun(work, runner))
        process = _process(work, runner)
        before = (cpu_seconds(process) if process else 0.0), time.monotonic()
        began = published(bus, load)
        used = (cpu_seconds(process) if process else float("nan")) - before[0]
        cpu = used / (time.monotonic() - before[1])
    wanted = 2 + -(-int(load.rate * load.seconds) // 2)
    _until(lambda: len(list(deliveries(work, runner))) >= wanted and _is_committed(work, runner))
    return found_of(work, runner, load, began, cpu)


def _has_begun(work: Runtime, runner: str) -> bool:
    """Return whether the first two events, for which everything was cold, are delivered."""
    batches = work.ledger.batches(limit=None, runner=runner)
    return any(batch.state == "committed" or work.ledger.files(batch.batch_id, "outcome") for batch in batches)


def _is_committed(work: Runtime, runner: str) -> bool:
    """Return whether nothing of a runner is under way but a window in which nothing came."""
    batch = work.ledger.unfinished_batch(runner)
    return batch is None or all(span.end == span.start for span in work.ledger.ranges(batch.batch_id))


def _process(work: Runtime, runner: str) -> psutil.Process | None:
    shift = work.ledger.shift(runner)
    return None if shift is None else psutil.Process(int(shift.holder.split(":")[1]))


def _until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise RuntimeError("the runner does not deliver")
        time.sleep(0.5)
