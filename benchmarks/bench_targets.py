"""`make bench-targets`: what a target of many deliveries costs, compared with its client library alone.

One push process reads chunks of a batch, writes them to the target and stores their outcomes. Beside it, the client
library alone gets the same payloads as bytes, and writes the same rows in the same number of pieces. Both alternate,
because a machine's speed changes within minutes. CPU time is that of the process, and that of PostgreSQL's server; that
of Airflow's API server, which both ask for the same runs, is left out, because it is the most of both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_site import BUS, Cost, Site, cores, measured, push_all, push_of, site
from demo.s3_server import S3Server
from rich.console import Console
from rich.table import Table
from services.airflow import PASSWORD, USER, AirflowServer
from services.postgresql import postgresql

#: The minimum of a push's events per CPU-second, as a share of those of the client library alone.
GOAL = 0.6
#: For S3 this many events a second on two cores are enough, if that is less.
S3_GOAL = 250_000
#: The pieces in which both write: an embedded bus has so many partitions, and each has its span in a batch.
_PIECES = 4
#: A queue has receipts and retries, which SQLite alone has not; what a run of Airflow costs is up to its API server.
NO_GOAL = ("airflow", "queue")
#: The events of a run of Airflow, all in its conf: at most 1 MiB, as a rule allows.
_RUN_EVENTS = 1_000
_PATIENT = {"push_timeout": "600"}
_TITLES = ("target", "push, events/CPU-s", "client alone, events/CPU-s", "share", "times", "goal", "reached")


class Bench(NamedTuple):
    """A kind of target: the fields of a new one, what it gets of an event, and the same done by its client alone.

    `client` returns a function for payloads, which is called in a process of its own, as a push is. `variables` are
    settings with the connection; `server_cpu` returns the CPU seconds of a server that does part of the work. `work`
    pushes the chunks of a batch, and returns how many deliveries were delivered.
    """

    target: Callable[[Path], dict[str, Any]]
    client: Callable[[Path, Sequence[bytes]], Callable[[], None]]
    payload: Callable[[bytes], bytes]
    variables: Mapping[str, str] = {}
    server_cpu: Callable[[], float] = lambda: 0.0
    work: Callable[[Site, str, list[int]], int] = push_all


class Row(NamedTuple):
    """What one kind of target cost: events a CPU-second of each round, by push and by client."""

    kind: str
    push: list[float]
    client: list[float]

    @property
    def share(self) -> float:
        """The median of the rounds."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.push, self.client, strict=True))

    @property
    def kept(self) -> bool:
        """Whether the goal is reached."""
        enough = self.kind in NO_GOAL or (self.kind == "s3" and statistics.median(self.push) * 2 >= S3_GOAL)
        return enough or self.share >= GOAL


def event(number: int, size: int) -> bytes:
    """Return the n-th event, of about `size` bytes; its data is a row."""
    data = {"order_id": f"o-{number:09d}", "amount": number * 1.25, "lines": number % 7}
    data |= {"placed_at": "2026-11-30T10:00:00Z", "express": number % 2 == 0, "note": ""}
    head = {"specversion": "1.0", "id": f"e{number:09d}", "source": "/bench", "type": "bench", "data": data}
    data["note"] = "x" * max(0, size - len(json.dumps(head)))
    return json.dumps(head).encode()


def _data(body: bytes) -> bytes:
    return json.dumps(json.loads(body)["data"]).encode()


def _pieces(payloads: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    length = -(-len(payloads) // _PIECES)
    for start in range(0, len(payloads), length):
        yield payloads[start : start + length]


_COLUMNS = {"order_id": "string", "amount": "double", "lines": "long"}
_COLUMNS |= {"placed_at": "timestamp", "express": "boolean", "note": "string"}


def _rows(payloads: Sequence[bytes]) -> Iterator[Any]:
    """Yield Arrow tables of the payloads, as pyarrow's own reader makes them."""
    import pyarrow as pa
    from pyarrow.json import ParseOptions, read_json

    from eventbridge.targets.arrow_rows import arrow_type

    schema = pa.schema([(name, arrow_type(kind)) for name, kind in _COLUMNS.items()])
    options = ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    for piece in _pieces(payloads):
        yield read_json(pa.BufferReader(b"\n".join(piece)), parse_options=options)


@contextmanager
def _delta() -> Iterator[Bench]:
    def write(folder: Path, payloads: Sequence[bytes]) -> None:
        from deltalake import write_deltalake

        for rows in _rows(payloads):
            write_deltalake(str(folder / "client"), rows, mode="append")

    yield Bench(
        lambda folder: {"type": "delta", "table": str(folder / "push"), "columns": _COLUMNS},
        lambda folder, payloads: partial(write, folder, payloads),
        _data,
    )


@contextmanager
def _iceberg() -> Iterator[Bench]:
    """In a catalog in SQLite, with its files in a folder."""
    from services.iceberg import sqlite_catalog

    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        lake = sqlite_catalog(Path(folder))
        lake.catalog.create_namespace("bench")

        def write(payloads: Sequence[bytes]) -> None:
            from pyiceberg.catalog.sql import SqlCatalog

            name = f"bench.t{uuid.uuid4().hex}"
            catalog = SqlCatalog(lake.catalog.name, **lake.catalog.properties)
            for rows in _rows(payloads):
                catalog.create_table_if_not_exists(name, rows.schema).append(rows)

        def target(_: Path) -> dict[str, Any]:
            table = f"bench.t{uuid.uuid4().hex}"
            return {"type": "iceberg", "connection": "there", "table": table, "columns": _COLUMNS}

        variables = {"conn_there": lake.variable}
        yield Bench(target, lambda _, payloads: partial(write, payloads), _data, variables)


@contextmanager
def _s3() -> Iterator[Bench]:
    with S3Server() as server:
        server.make_bucket("tests")

        def write(payloads: Sequence[bytes]) -> None:
            from io import BytesIO

            from eventbridge.clients.s3.access import S3Access, S3Clients
            from eventbridge.config.connection import connections_from_environment

            connection = connections_from_environment({"EVENTBRIDGE_CONN_C": server.connection})("c")
            client = S3Clients(S3Access.from_connection(connection)).boto
            for number, piece in enumerate(_pieces(payloads)):
                body = BytesIO(b"\n".join(piece))
                client.upload_fileobj(body, "tests", f"{uuid.uuid4().hex}/{number}.jsonl")

        yield Bench(
            lambda _: {"type": "s3", "connection": "there", "bucket": "tests", "prefix": uuid.uuid4().hex},
            lambda _, payloads: partial(write, payloads),
            bytes,
            {"conn_there": server.connection},
        )


@contextmanager
def _sql() -> Iterator[Bench]:
    with postgresql() as server:
        names = [*_COLUMNS]
        kinds = ("text PRIMARY KEY", "float8", "bigint", "timestamptz", "boolean", "text")
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        listed, updates = ", ".join(names), ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        url = server.new_database()
        postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])

        def new_table() -> str:
            import psycopg

            name = f"t{uuid.uuid4().hex}"
            with psycopg.connect(url) as connection:
                connection.execute(f"CREATE TABLE {name} ({columns})")
            return name

        def write(table: str, payloads: Sequence[bytes]) -> None:
            import msgspec
            import psycopg

            decode = msgspec.json.Decoder(dict[str, Any]).decode
            with psycopg.connect(url) as connection:
                for piece in _pieces(payloads):
                    with connection.transaction(), connection.cursor() as cursor:
                        cursor.execute(f"CREATE TEMP TABLE staged (LIKE {table}) ON COMMIT DROP")
                        with cursor.copy(f"COPY staged ({listed}) FROM STDIN") as copy:
                            for payload in piece:
                                row = decode(payload)
                                copy.write_row([row[name] for name in names])
                        cursor.execute(
                            f"INSERT INTO {table} ({listed}) SELECT {listed} FROM staged "
                            f"ON CONFLICT (order_id) DO UPDATE SET {updates}"
                        )

        where = {"conn_type": "postgres", "host": "127.0.0.1", "port": server.port, "login": "postgres"}
        yield Bench(
            lambda _: {
                "type": "sql",
                "connection": "there",
                "table": new_table(),
                "key": ["order_id"],
                "timeout": "30s",
            },
            lambda _, payloads: partial(write, new_table(), payloads),
            _data,
            {"conn_there": json.dumps(where | {"schema": url.rpartition("/")[2]})},
            lambda: _cpu_of(postmaster),
        )


@contextmanager
def _airflow() -> Iterator[Bench]:
    """Many events start one run, because a run costs the API server 20 ms of CPU time, whatever is in it."""

    def write(server: AirflowServer, payloads: Sequence[bytes]) -> None:
        import httpx
        import msgspec

        login = {"username": USER, "password": PASSWORD}
        token = httpx.post(f"{server.url}/auth/token", json=login).raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with httpx.Client(base_url=f"{server.url}/api/v2/", headers=headers, timeout=60) as client:
            for piece in _pieces(payloads):
                for start in range(0, len(piece), _RUN_EVENTS):
                    conf = {"events": [decode(payload) for payload in piece[start : start + _RUN_EVENTS]]}
                    run = {"dag_run_id": str(uuid.uuid4()), "logical_date": None, "conf": conf}
                    client.post("dags/load_orders/dagRuns", json=run).raise_for_status()

    target = {"type": "airflow", "connection": "there", "allow_http": True, "dag_id": "load_orders", "timeout": "30s"}
    batch = {"count": _RUN_EVENTS, "bytes": "1MiB"}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        AirflowServer(Path(folder) / "airflow") as server,
    ):
        where = {"conn_type": "http", "host": server.url, "login": USER, "password": PASSWORD}
        yield Bench(
            lambda _: target | {"batch": batch},
            lambda _, payloads: partial(write, server, payloads),
            bytes,
            {"conn_there": json.dumps(where)},
        )


@contextmanager
def _queue() -> Iterator[Bench]:
    """In a ledger in SQLite, with a consumer that receives and acknowledges 1,000 deliveries at a time.

    Beside it, SQLite alone: a table of payloads, whose rows are inserted, read with a change, and changed again.
    """

    def write(folder: Path, payloads: Sequence[bytes]) -> None:
        import sqlite3

        with closing(sqlite3.connect(folder / "queue.sqlite", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE queue (number INTEGER PRIMARY KEY, state TEXT, payload BLOB)")
            database.execute("CREATE INDEX ready ON queue (number) WHERE state = 'ready'")

            def change(statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(statement, rows)
                database.execute("COMMIT")

            for start in range(0, len(payloads), 500):
                new = [(each,) for each in payloads[start : start + 500]]
                change("INSERT INTO queue (state, payload) VALUES ('ready', ?)", new)
            first = "SELECT number, payload FROM queue WHERE state = 'ready' ORDER BY number LIMIT 1000"
            while rows := database.execute(first).fetchall():
                for state in ("received", "acknowledged"):
                    change("UPDATE queue SET state = ? WHERE number = ?", [(state, number) for number, _ in rows])

    yield Bench(
        lambda _: {"type": "queue", "queue": "bench"},
        lambda folder, payloads: partial(write, folder, payloads),
        bytes,
        work=_consumed,
    )


def _consumed(installation: Site, batch_id: str, chunk_ids: list[int]) -> int:
    from eventbridge.control.queues import acknowledge, receive

    with closing(installation.open()) as runtime:
        push_of(runtime, batch_id, chunk_ids)
        rules, done = runtime.rule_set(), 0
        while got := receive(runtime, rules, "bench", 1_000):
            done += acknowledge(runtime, rules, "bench", [each.receipt for each in got]).done
        return done


KINDS: Mapping[str, Callable[[], AbstractContextManager[Bench]]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "s3": _s3,
    "sql": _sql,
    "airflow": _airflow,
    "queue": _queue,
}


def _cpu_of(postmaster: int) -> float:
    """Return the CPU seconds of a PostgreSQL server so far, with those of its processes that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            numbers = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(path.parent.name) == postmaster or int(numbers[1]) == postmaster:
            ticks += sum(map(int, numbers[11:15]))  # utime, stime, and those of its children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure each kind of target and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="number of events of each pass (default: 100000)")
    parser.add_argument("--bytes", type=int, default=1024, help="size of an event (default: 1024)")
    parser.add_argument("--times", type=int, default=3, help="rounds, of which the median counts (default: 3)")
    parser.add_argument("--targets", nargs="+", choices=KINDS, default=list(KINDS), help="default: all")
    options = parser.parse_args()
    rows = [_measure(kind, options.events, options.bytes, options.times) for kind in options.targets]
    Console(width=120).print(_table(rows, options.events, options.bytes))
    return 0 if all(row.kept for row in rows) else 1


def _measure(kind: str, events: int, size: int, times: int) -> Row:
    row = Row(kind, [], [])
    with KINDS[kind]() as bench:
        for _ in range(times):
            row.push.append(events / _push(kind, bench, events, size))
            row.client.append(events / _client(bench, events, size))
    return row


def _push(kind: str, bench: Bench, events: int, size: int) -> float:
    """Return the CPU seconds of a push."""
    with site(**_PATIENT, **bench.variables) as installation:
        installation.write_rules({"all": {"target": bench.target(installation.folder)}})
        _publish(installation, events, size)
        batch_id, chunk_ids = installation.routed()
        cost, server = _measured(bench, lambda: bench.work(installation, batch_id, chunk_ids))
        if cost.result != events:
            raise RuntimeError(f"{kind}: only {cost.result:,} of {events:,} were delivered at the first attempt")
    return cost.cpu + server


def _client(bench: Bench, events: int, size: int) -> float:
    """Return the CPU seconds of the client library alone."""
    payloads = [bench.payload(event(number, size)) for number in range(events)]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        cost, server = _measured(bench, bench.client(Path(folder), payloads))
    return cost.cpu + server


def _measured(bench: Bench, work: Callable[[], Any]) -> tuple[Cost, float]:
    before = bench.server_cpu()
    cost = measured(work, cores()[0])
    return cost, bench.server_cpu() - before


def _publish(installation: Site, events: int, size: int) -> None:
    with installation.bus() as bus:
        for start in range(0, events, 5_000):
            bus.publish([(event(number, size), None) for number in range(start, min(start + 5_000, events))])


def _table(rows: list[Row], events: int, size: int) -> Table:
    table = Table(title=f"{events:,} events of {size:,} bytes on the bus {BUS}, one process on one core")
    for title in _TITLES:
        table.add_column(title, justify="left" if title == "target" else "right")
    for row in rows:
        rates = (f"{statistics.median(each):,.0f}" for each in (row.push, row.client))
        goals = {"s3": f"{GOAL}, or {S3_GOAL:,}/s on 2 cores"} | dict.fromkeys(NO_GOAL, "none")
        table.add_row(
            row.kind,
            *rates,
            f"{row.share:.2f}",
            str(len(row.push)),
            goals.get(row.kind, f"{GOAL}"),
            "yes" if row.kept else "NO",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
