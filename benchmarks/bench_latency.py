"""`make bench-latency`: the time from publish to delivered at one event a second for a minute, and its parts.

Starts the demo's services with one rule and one healthy target; needs about two minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from demo.config import ROOT, RUN_FOLDER, DemoError, new_config, product_settings
from demo.services import Services, orphaned_groups

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.model.batch import Batch
from eventbridge.model.outcome import SettledDelivery
from eventbridge.pipeline.settle.settlement import read_settled
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

RULES = ROOT / "benchmarks" / "latency_rules"

#: The promised median and 99th percentile, in seconds.
PROMISED = (4.0, 10.0)

PARTS = (
    ("waited for a run", "published until listen planned its batch"),
    ("landed", "until buffer had read it"),
    ("routed", "until its chunk was published"),
    ("push started", "until its push task claimed the chunk"),
    ("delivered", "until the target's response was there"),
)


@dataclass(frozen=True)
class Passage:
    """When one event passed each stage, published first, delivered last."""

    times: tuple[datetime, ...]

    @property
    def seconds(self) -> float:
        """From publish to delivered."""
        return (self.times[-1] - self.times[0]).total_seconds()

    def parts(self) -> list[float]:
        """Return the seconds between one stage and the next."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return [(later - earlier).total_seconds() for earlier, later in pairs]


def main() -> int:
    """Return the exit code: 0 if what is promised holds, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=60, help="how many, one a second (default: 60)")
    events = parser.parse_args().events
    try:
        if orphaned_groups(RUN_FOLDER):
            raise DemoError("An environment is already running. Stop it with `make down`.")
        services = Services(new_config(RUN_FOLDER, rules_folder=RULES))
        try:
            services.start()
            passages = _measure(services, events)
        finally:
            services.stop()
    except (DemoError, EventBridgeError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return _report(passages)


def _measure(services: Services, events: int) -> list[Passage]:
    settings = product_settings(services.config)
    runtime = open_runtime(Settings.from_mapping(settings), connections_from_environment(settings))
    with closing(runtime), EmbeddedBus(runtime.settings.bus_folder, "ticks", clock=runtime.clock) as bus:
        _publish(bus, 1, "first")  # the very first run finds everything cold; it is not counted
        _wait(runtime, services, 1)
        _publish(bus, events, "tick")
        _wait(runtime, services, events + 1)
        return sorted(_passages(runtime), key=lambda passage: passage.times)[1:]


def _publish(bus: EmbeddedBus, count: int, name: str) -> None:
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number - time.monotonic()))
        event = {"specversion": "1.0", "id": f"{name}-{number}", "source": "/bench", "type": "tick", "data": {}}
        bus.publish([(json.dumps(event).encode(), None)])


def _wait(runtime: Runtime, services: Services, count: int) -> None:
    until = time.monotonic() + 120
    while len(list(_passages(runtime))) < count:
        services.check()
        if time.monotonic() > until:
            raise DemoError(f"Not all of {count} events were delivered after 120 s.")
        time.sleep(0.5)


def _passages(runtime: Runtime) -> Iterator[Passage]:
    for batch in runtime.ledger.batches.find(limit=None):
        if batch.state == "committed" and batch.deadline_at is not None:
            started = {
                chunk.chunk_id: chunk.started_at for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)
            }
            for row in read_settled(runtime, batch.batch_id):
                if row.status == "delivered":
                    yield _passage(runtime, batch, started, row)


def _passage(runtime: Runtime, batch: Batch, started: Mapping[int, datetime | None], row: SettledDelivery) -> Passage:
    assert row.chunk_id is not None
    pushed = started[row.chunk_id]
    assert batch.deadline_at is not None
    assert pushed is not None
    routed = batch.deadline_at - timedelta(seconds=runtime.settings.batch_timeout)
    times = (
        row.published_at,
        batch.planned_at,
        row.arrived_at,
        routed,
        pushed,
        row.settled_at,
    )
    return Passage(times)


def _report(passages: Sequence[Passage]) -> int:
    seconds = [passage.seconds for passage in passages]
    parts = list(zip(*(passage.parts() for passage in passages), strict=True))
    print(f"publish to delivered, {len(passages)} events at one a second, seconds\n")  # noqa: T201
    for (name, what), values in zip(PARTS, parts, strict=True):
        print(f"  {name:<18} p50 {_quantile(values, 0.5):5.2f}   p99 {_quantile(values, 0.99):5.2f}   {what}")  # noqa: T201
    p50, p99 = _quantile(seconds, 0.5), _quantile(seconds, 0.99)
    print(f"\n  {'in all':<18} p50 {p50:5.2f}   p99 {p99:5.2f}   mean {statistics.mean(seconds):.2f}")  # noqa: T201
    kept = p50 <= PROMISED[0] and p99 <= PROMISED[1]
    print(f"  promised: p50 {PROMISED[0]:g}, p99 {PROMISED[1]:g}: {'met' if kept else 'MISSED'}")  # noqa: T201
    return 0 if kept else 1


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    sys.exit(main())
