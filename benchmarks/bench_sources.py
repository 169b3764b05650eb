"""`make bench-sources`: the cost of landing a broker's events in the store, compared with only reading them.

A real broker holds a backlog. One process only reads it, block by block. Another plans one batch, checks every event
and lands the batch as Parquet, as the stages listen and buffer do. In a third pass, the two workers of a Spark Connect
server land it in parts; only the wall time of this pass counts. The passes alternate, because a machine's speed changes
within minutes. CPU time does not include the broker's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_site import BUS, RUNNER, Cost, Site, event, measured, site
from rich.console import Console
from rich.table import Table
from services import rocketmq
from services.kafka import Kafka, make_topics

from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.spark.land import ConnectLander
from eventbridge.spark.server import SparkConnectServer

#: The minimum rate of landing: events per CPU-second, or a share of the rate of only reading.
GOALS = {"kafka": 80_000, "rocketmq": 60_000}
SHARE_GOAL = 0.3

_TITLES = (
    "source",
    "read, events/CPU-s",
    "landed, events/CPU-s",
    "landed, events/s",
    "by workers",
    "times",
    "share",
    "peak MiB",
)
_TOPIC = "events"
_PARTITIONS = 4
_AT_ONCE = 5_000


class Broker(NamedTuple):
    """A broker that runs: the connection to it, and the bus's source in a rule file."""

    connection: str
    source: Mapping[str, Any]


class Row(NamedTuple):
    """What one source's backlog cost, by what was done: events a CPU-second of each round."""

    name: str
    reading: list[float]
    landing: list[float]
    landing_wall: list[float]
    workers_wall: list[float]
    peak_mib: float

    @property
    def times(self) -> float:
        """How many times as fast workers landed it as one process: the median of the rounds."""
        return statistics.median(ours / one for ours, one in zip(self.workers_wall, self.landing_wall, strict=True))

    @property
    def share(self) -> float:
        """Landing as a share of reading alone: the median of the rounds."""
        return statistics.median(ours / alone for ours, alone in zip(self.landing, self.reading, strict=True))

    @property
    def is_kept(self) -> bool:
        """Whether a goal is reached, the one of speed or the one of share."""
        return statistics.median(self.landing) >= GOALS[self.name] or self.share >= SHARE_GOAL


def main() -> int:
    """Measure each source and print the table; 1 if one reaches neither goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000, help="number of events in the backlog (default: 500000)")
    parser.add_argument("--bytes", type=int, default=1024, help="size of an event (default: 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of reading and landing (default: 3)")
    parser.add_argument("--sources", nargs="*", default=list(BROKERS), choices=list(BROKERS), help="default: all")
    options = parser.parse_args()
    rows = [_row(name, BROKERS[name], options) for name in options.sources]
    Console(width=140).print(_table(rows, options))
    for row in rows:
        found = f"{statistics.median(row.landing):,.0f} a CPU-second, {row.share:.2f} of reading alone"
        goal = f"{GOALS[row.name]:,} a CPU-second, or {SHARE_GOAL:g} of reading alone"
        print(f"goal: {row.name}: {goal}: {found}: {'met' if row.is_kept else 'MISSED'}")  # noqa: T201
    return 0 if all(row.is_kept for row in rows) else 1


@contextmanager
def _kafka() -> Iterator[Broker]:
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-kafka-") as folder,
        Kafka(Path(folder).absolute()) as kafka,
    ):
        make_topics(kafka, _TOPIC, partitions=_PARTITIONS)
        source = {"type": "kafka", "connection": "broker", "topics": [_TOPIC], "start_at": "earliest"}
        yield Broker(kafka.connection, source)


@contextmanager
def _rocketmq() -> Iterator[Broker]:
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-rocketmq-") as folder,
        rocketmq.RocketMQ(Path(folder).absolute(), file_bytes=64 << 20, responses_large=True) as server,
    ):
        rocketmq.make_topics(server, _TOPIC, partitions=_PARTITIONS)
        source = {"type": "rocketmq", "connection": "broker", "topics": [_TOPIC], "start_at": "earliest"}
        yield Broker(server.connection, source)


#: The brokers that hold a backlog, each for a block.
BROKERS: Mapping[str, Callable[[], AbstractContextManager[Broker]]] = {"kafka": _kafka, "rocketmq": _rocketmq}


def _row(name: str, begin: Callable[[], AbstractContextManager[Broker]], options: argparse.Namespace) -> Row:
    reading: list[Cost] = []
    landing: list[Cost] = []
    by_workers: list[Cost] = []
    with begin() as broker, _spark(broker) as url:
        with _installation(broker) as installation:
            measured(partial(_publish, installation, options.events, options.bytes))
        for _ in range(options.rounds):
            for costs, runtime in ((reading, _read), (landing, land), (by_workers, partial(land, spark=url))):
                with _installation(broker) as installation:
                    costs.append(measured(partial(runtime, installation)))
                if costs[-1].result != options.events:
                    raise RuntimeError(f"{name}: {costs[-1].result:,} of {options.events:,} events came")
    rates = [[options.events / cost.cpu for cost in costs] for costs in (reading, landing)]
    walls = [[options.events / cost.wall for cost in costs] for costs in (landing, by_workers)]
    return Row(name, rates[0], rates[1], walls[0], walls[1], max(cost.peak_mib for cost in landing))


@contextmanager
def _spark(broker: Broker) -> Iterator[str]:
    """Run a Spark Connect server whose workers know the broker; yields its URL."""
    environ = {**os.environ, "EVENTBRIDGE_CONN_BROKER": broker.connection}
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-spark-") as folder,
        SparkConnectServer(Path(folder), environ=environ) as server,
    ):
        yield server.url


@contextmanager
def _installation(broker: Broker) -> Iterator[Site]:
    """Make an installation that has seen nothing of the broker's backlog."""
    with site(conn_broker=broker.connection) as installation:
        installation.write_rules(
            {"none": {"log": {"type": "file", "path": str(installation.folder / "log")}}}, source=broker.source
        )
        yield installation


def _publish(installation: Site, count: int, size: int) -> None:
    with closing(installation.open()) as runtime, closing(runtime.open_publisher(runtime.rule_set().buses[BUS])) as bus:
        for start in range(0, count, _AT_ONCE):
            bus.publish([(event(number, size), None) for number in range(start, min(start + _AT_ONCE, count))])


def _read(installation: Site) -> int:
    with closing(installation.open()) as runtime, closing(runtime.open_source(runtime.rule_set().buses[BUS])) as source:
        found = 0
        for partition in source.partitions():
            found += sum(
                block.num_rows for block in source.read(partition, source.earliest(partition), source.end(partition))
            )
        return found


def land(installation: Site, spark: str | None = None) -> int:
    """Plan one batch of what a bus holds and land it, by the workers of a Spark server or alone; return how many."""
    open_lander = None if spark is None else lambda _: ConnectLander(spark)
    with closing(installation.open()) as runtime:
        batch_id = listen(runtime, RUNNER)
        assert batch_id is not None, "events were published"
        buffer(runtime, batch_id, open_lander)
        return sum(file.rows for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"))


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    table = Table(
        title=f"a backlog of {options.events:,} events of {options.bytes:,} bytes in {_PARTITIONS} partitions"
    )
    for title in _TITLES:
        table.add_column(title, justify="left" if title == "source" else "right")
    for row in rows:
        middle = [
            f"{statistics.median(each):,.0f}" for each in (row.reading, row.landing, row.landing_wall, row.workers_wall)
        ]
        table.add_row(row.name, *middle, f"{row.times:.2f}", f"{row.share:.2f}", f"{row.peak_mib:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
