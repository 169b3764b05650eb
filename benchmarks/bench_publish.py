"""Measures how fast events are published to the embedded bus and read from it.

`python benchmarks/bench_publish.py` prints one table; the claim is 100,000 events of 1 KiB in at most 5 s.
The bus is created in a temporary folder below the working directory, so that a real disk is measured.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from eventbridge.sources.embedded.bus import EmbeddedBus

EVENTS = 100_000


class Run(NamedTuple):
    """One line of the table; seconds of wall clock, `cpu` of this process."""

    batch: int
    events: int
    publish: float
    cpu: float
    read: float


def main() -> None:
    """Measure each batch size and print the table."""
    parser = argparse.ArgumentParser(description="Measure publishing to and reading from the embedded bus.")
    parser.add_argument("--events", type=int, default=EVENTS, help="number of events (default: 100000)")
    parser.add_argument("--bytes", type=int, default=1024, help="size of an event (default: 1024)")
    options = parser.parse_args()
    table = Table(title=f"embedded bus, events of {options.bytes:,} bytes, 4 partitions")
    for title in ("batch", "events", "publish s", "CPU s", "events/s", "MiB/s", "read s", "read events/s"):
        table.add_column(title, justify="right")
    for run in _runs(options.events, options.bytes):
        table.add_row(
            f"{run.batch:,}",
            f"{run.events:,}",
            f"{run.publish:.2f}",
            f"{run.cpu:.2f}",
            f"{run.events / run.publish:,.0f}",
            f"{run.events * options.bytes / run.publish / 2**20:.0f}",
            f"{run.read:.2f}",
            f"{run.events / run.read:,.0f}",
        )
    Console().print(table)


def _runs(events: int, size: int) -> Iterator[Run]:
    # One event a publish waits for the disk each time: a fiftieth of the events is enough to see it.
    for batch, count in ((1, max(1, events // 50)), (100, events), (1_000, events), (5_000, events)):
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
            yield _measure(Path(folder), batch, count, size)


def _measure(folder: Path, batch: int, events: int, size: int) -> Run:
    bodies = [os.urandom(size) for _ in range(min(events, 1_000))]
    with EmbeddedBus(folder, "bench", clock=lambda: datetime.now(UTC)) as bus:
        started, cpu = time.perf_counter(), time.process_time()
        for first in range(0, events, batch):
            numbers = range(first, min(first + batch, events))
            bus.publish([(bodies[number % len(bodies)], f"key-{number % 997}") for number in numbers])
        published, cpu = time.perf_counter() - started, time.process_time() - cpu
        started = time.perf_counter()
        read = sum(block.num_rows for partition, end in bus.ends().items() for block in bus.read(partition, 0, end))
        assert read == events
        return Run(batch, events, published, cpu, time.perf_counter() - started)


if __name__ == "__main__":
    main()
