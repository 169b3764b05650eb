"""`make bench-api`: how many events the HTTP API accepts per CPU-second of its server, compared with a FastAPI echo.

Several connections send batches of CloudEvents of 1 KiB to `eventbridge serve`, which responds when they are on disk.
The same bodies go to an application that returns them. CPU time is that of the server's process alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
from rich.console import Console
from rich.table import Table

#: The promised minimum of events per CPU-second of the server, in batches of 100.
GOAL = 20_000
_RULES = "buses: {orders: {source: {type: embedded}}}\n"
_BATCHED = {"content-type": "application/cloudevents-batch+json"}
_WARM_CALLS = 20
_TICK = 0.01


class Row(NamedTuple):
    """One line of the table; seconds of the server's CPU, and of wall clock."""

    what: str
    events: int
    cpu: float
    wall: float
    goal: int | None = None

    @property
    def rate(self) -> float:
        """Events per CPU-second; of so few that the clock did not tick, as if it had."""
        return self.events / max(self.cpu, _TICK)


def main() -> int:
    """Measure each row and print the table; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="number of events for each row (default: 200000)")
    parser.add_argument("--batch", type=int, default=100, help="events in a call (default: 100)")
    parser.add_argument("--bytes", type=int, default=1024, help="size of an event (default: 1024)")
    parser.add_argument("--connections", type=int, default=4, help="number of concurrent connections (default: 4)")
    options = parser.parse_args()
    calls = max(options.connections, options.events // options.batch)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-api-") as folder:
        rows = list(_measure(Path(folder).absolute(), calls, options))
    Console(width=120).print(_table(rows, options))
    return 0 if all(row.goal is None or row.rate >= row.goal for row in rows) else 1


def _measure(folder: Path, calls: int, options: argparse.Namespace) -> Iterator[Row]:
    (folder / "rules").mkdir()
    (folder / "rules" / "orders.yaml").write_text(_RULES)
    names = {"EVENTBRIDGE_HOME": str(folder / "home"), "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules")}
    environ = {**os.environ, **names}
    command = [sys.executable, "-m", "eventbridge.cli"]
    create = [*command, "tokens", "create", "bench", "--scope", "publish:orders", "--json"]
    token = json.loads(subprocess.run(create, env=environ, check=True, capture_output=True).stdout)["token"]
    bodies = [_batch(call, options.batch, options.bytes) for call in range(calls + _WARM_CALLS)]
    send = _Send(calls, options.batch, options.connections, bodies)
    with _server([*command, "serve", "--port", "0"], environ) as (process, url):
        headers = _BATCHED | {"authorization": f"Bearer {token}"}
        yield send.row("publish to the API, on disk", process, f"{url}/v1/buses/orders/events", headers, GOAL)
    with _server([sys.executable, "-m", "benchmarks.bare_echo"], environ) as (process, url):
        headers = {"content-type": "application/json"}
        yield send.row("bare FastAPI, body given back", process, f"{url}/raw", headers)
        yield send.row("bare FastAPI, JSON read and written", process, f"{url}/json", headers)


class _Send(NamedTuple):
    calls: int
    batch: int
    connections: int
    bodies: list[bytes]

    def row(
        self, what: str, process: psutil.Process, url: str, headers: Mapping[str, str], goal: int | None = None
    ) -> Row:
        self._post(url, headers, self.bodies[self.calls :])
        before, start = _cpu(process), time.monotonic()
        shares = [self.bodies[: self.calls][number :: self.connections] for number in range(self.connections)]
        with ThreadPoolExecutor(self.connections) as threads:
            list(threads.map(lambda share: self._post(url, headers, share), shares))
        return Row(what, self.calls * self.batch, _cpu(process) - before, time.monotonic() - start, goal)

    def _post(self, url: str, headers: Mapping[str, str], bodies: list[bytes]) -> None:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        for body in bodies:
            connection.request("POST", parts.path, body, dict(headers))
            response = connection.getresponse()
            said = response.read()
            if response.status != 200:
                raise RuntimeError(f"{url}: {response.status}: {said[:500]!r}")
        connection.close()


@contextmanager
def _server(command: list[str], environ: Mapping[str, str]) -> Iterator[tuple[psutil.Process, str]]:
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"{' '.join(command)} did not start: {line!r}")
            yield psutil.Process(process.pid), line.split()[-1]
        finally:
            process.terminate()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _batch(call: int, batch: int, size: int) -> bytes:
    events = []
    for number in range(batch):
        event = {"specversion": "1.0", "id": f"{call}-{number}", "source": "/bench", "type": "order.placed"}
        event = {**event, "subject": f"customer-{number % 7}", "time": "2026-01-01T00:00:00Z"}
        data = {"amount": number, "note": ""}
        data["note"] = "x" * max(0, size - len(json.dumps({**event, "data": data})))
        events.append({**event, "data": data})
    return json.dumps(events).encode()


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    title = f"Calls of {options.batch} events of {options.bytes:,} bytes, {options.connections} connections"
    table = Table(title=title, title_justify="left")
    for column in ("", "events", "events/CPU-s", "events/s", "us CPU an event", "goal"):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:,}: {'met' if row.rate >= row.goal else 'MISSED'}"
        figures = [
            f"{row.events:,}",
            f"{row.rate:,.0f}",
            f"{row.events / row.wall:,.0f}",
            f"{1e6 / row.rate:.1f}",
            goal,
        ]
        table.add_row(row.what, *figures)
    return table


if __name__ == "__main__":
    sys.exit(main())
