"""`make bench-why`: the time of `eventbridge events why` over a month of events, and the size of its index.

The archive is built day by day from batches as `buffer` lands them, in ledger and store. In the middle of it, real
events are delivered, and the queries ask about them. Then `maintain` builds the index. Every query is a process of its
own, as in a shell.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from benchmarks.archive import archive_batch, record
from benchmarks.bench_site import RUNNER, Site, event, site
from rich.console import Console
from rich.table import Table

from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.store.schemas import BUFFER
from eventbridge.upkeep.event_index import index_events
from eventbridge.upkeep.run import RetentionRun

#: The maximum time of a query over 30 days of 1,000,000 events, in seconds.
GOAL: Final = 2.0

_DELIVERED: Final = 200


@dataclass(frozen=True)
class Row:
    """What was measured with so many days in the archive; seconds of wall clock, CPU seconds of indexing."""

    days: int
    events: int
    batches: int
    index_bytes: int
    index_cpu: float
    delivered: float
    unknown: float
    scanned: float | None


def main() -> int:
    """Measure and print the table; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--events", type=int, default=100_000, help="events a day")
    parser.add_argument("--batches", type=int, default=576, help="batches a day: one in 150 s")
    parser.add_argument("--rounds", type=int, default=5, help="queries of each kind, of which the median counts")
    options = parser.parse_args()
    rows: list[Row] = []
    with site() as installation:
        asked = _deliver(installation)
        done = 0
        for days in sorted({max(1, options.days // 4), max(1, options.days // 2), options.days}):
            for day in range(done, days):
                _land(installation, day, options.events, options.batches)
            rows.append(_measured(installation, days, options, asked, added=days - done, last=days == options.days))
            done = days
    return 0 if _show(rows) else 1


def _deliver(installation: Site) -> str:
    """Publish and deliver some events; return the id of one."""
    installation.write_rules({"lines": {"good": {"type": "file", "path": str(installation.folder / "lines.jsonl")}}})
    installation.publish(_DELIVERED, 256)
    with closing(installation.open()) as runtime:
        deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store), wait_seconds=1.0)
    return f"e{_DELIVERED // 2:09d}"


def _land(installation: Site, day: int, events: int, count: int) -> None:
    """Put a day's batches into store and ledger, as if they were landed and committed `day` days before yesterday."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=day + 1)
    size = events // count
    with closing(installation.open()) as runtime:
        (first,) = runtime.ledger.batches.find(limit=1)
        times = [begin + number * timedelta(days=1) / count for number in range(count)]
        tables = (archived_events(day * events + number * size, size, at) for number, at in enumerate(times))
        record(
            runtime,
            [archive_batch(runtime, first.rule_set, at, [table]) for at, table in zip(times, tables, strict=True)],
        )


def archived_events(start: int, size: int, at: datetime) -> pa.Table:
    """Return so many events of the archive from a number on, landed then."""
    numbers = range(start, start + size)
    columns: dict[str, list[Any]] = {
        "topic": ["events"] * size,
        "broker": [""] * size,
        "partition_id": [0] * size,
        "offset": list(numbers),
        "message_id": [f"events-0-{number}" for number in numbers],
        "published_at": [at] * size,
        "arrived_at": [at] * size,
        "status": ["valid"] * size,
        "reason": [None] * size,
        "event_id": [f"old-{number:012d}" for number in numbers],
        "source": ["/bench"] * size,
        "type": ["bench"] * size,
        "body": [event(number, 256) for number in numbers],
    }
    return pa.table(columns, schema=BUFFER)


def _measured(installation: Site, days: int, options: argparse.Namespace, asked: str, *, added: int, last: bool) -> Row:
    scanned = None
    if last and days == added:  # nothing is indexed yet
        scanned = _seconds(installation, "events", "why", asked, code=0)
    elif last:
        scanned = _seconds(
            installation, "events", "why", f"old-{options.events // 2:012d}", "--from", f"{added + 1}d", code=0
        )
    cpu = time.process_time()
    with closing(installation.open()) as runtime:
        index_events(RetentionRun(runtime, 86_400.0, dry_run=False))
        index_cpu = time.process_time() - cpu
        size = sum(
            (installation.folder / "home" / "store" / path).stat().st_size for path in runtime.store.list("index/")
        )
    return Row(
        days=days,
        events=days * options.events,
        batches=days * options.batches,
        index_bytes=size,
        index_cpu=index_cpu / (added * options.events),
        delivered=statistics.median(
            _seconds(installation, "events", "why", asked, code=0) for _ in range(options.rounds)
        ),
        unknown=statistics.median(
            _seconds(installation, "events", "why", "nobody", code=2) for _ in range(options.rounds)
        ),
        scanned=scanned,
    )


def _seconds(installation: Site, *arguments: str, code: int) -> float:
    """Return the wall clock time of one command in a process of its own."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "eventbridge.cli", *arguments],
        env=os.environ | installation.environ(),
        capture_output=True,
        text=True,
    )
    if done.returncode != code:
        raise SystemExit(f"`{' '.join(arguments)}` ended with {done.returncode}: {done.stderr}")
    return time.perf_counter() - begun


def _show(rows: list[Row]) -> bool:
    table = Table(title="eventbridge events why: seconds of a command, from start to end")
    titles = (
        "days",
        "events",
        "batches",
        "index B/event",
        "indexing CPU us/event",
        "delivered",
        "unknown id",
        "not indexed",
    )
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            f"{row.days}",
            f"{row.events:,}",
            f"{row.batches:,}",
            f"{row.index_bytes / row.events:.1f}",
            f"{row.index_cpu * 1e6:.1f}",
            f"{row.delivered:.2f}",
            f"{row.unknown:.2f}",
            "" if row.scanned is None else f"{row.scanned:.2f}",
        )
    Console(width=130).print(table)
    kept = all(max(row.delivered, row.unknown) <= GOAL for row in rows)
    print(f"goal: each at most {GOAL:g} s: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


if __name__ == "__main__":
    sys.exit(main())
