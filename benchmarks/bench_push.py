"""`make bench-push`: how fast one push process delivers, compared with clients that only POST.

Deliveries of 1 KiB are signed and sent over loopback to a compiled receiver on another core, and their outcomes are
stored. aiohttp and httpx send the same bodies with the same number in flight, but sign and store nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp
import httpx
from benchmarks.bench_site import Cost, cores, event, measured, push_all, site
from benchmarks.compiled_receiver import NoCompiler, compiled_receiver
from rich.console import Console
from rich.table import Table

_TYPE = {"content-type": "application/json"}
#: The promised minimum of deliveries per CPU-second and per second of wall clock.
HTTP_GOAL = (20_000, 15_000)
FILE_GOAL = (None, 300_000)
#: Chunks are sized for targets that accept 250 deliveries a second; for a target that is a thousand times as fast,
#: starting and ending a push would be a third of its time.
_LARGE_CHUNKS = {"chunk_max_deliveries": "20000", "chunk_max_size": str(64 << 20)}
#: httpx is slow enough that a fraction of the requests shows it.
_HTTPX_SHARE = 10


class Row(NamedTuple):
    """One line of the table."""

    what: str
    deliveries: int
    cost: Cost
    goal: tuple[int | None, int | None] = (None, None)

    @property
    def rates(self) -> tuple[float, float]:
        """Deliveries per CPU-second and per second."""
        return self.deliveries / self.cost.cpu, self.deliveries / self.cost.wall

    @property
    def kept(self) -> bool:
        """Whether both goals are reached."""
        return all(goal is None or rate >= goal for rate, goal in zip(self.rates, self.goal, strict=True))


def main() -> int:
    """Measure each row and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--deliveries", type=int, default=100_000, help="number of deliveries for each row (default: 100000)"
    )
    parser.add_argument("--bytes", type=int, default=1024, help="size of a delivery (default: 1024)")
    parser.add_argument("--in-flight", type=int, default=32, help="requests at a time (default: 32)")
    parser.add_argument(
        "--times", type=int, default=5, help="passes to a file, of which the median counts (default: 5)"
    )
    options = parser.parse_args()
    try:
        rows = _measure(options.deliveries, options.bytes, options.in_flight, options.times)
    except NoCompiler as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    Console(width=120).print(_table(rows, options.bytes, options.in_flight))
    return 0 if all(row.kept for row in rows) else 1


def _measure(deliveries: int, size: int, in_flight: int, times: int) -> list[Row]:
    ours, theirs = cores()
    with compiled_receiver(theirs) as receiver:
        http = {"type": "http", "allow_http": True, "connection": "signed", "max_in_flight": in_flight}
        lines = {"type": "file", "path": "lines.jsonl"}
        rows = [
            _push("push to HTTP, signed, outcomes written", http | {"url": receiver.url("/ok/push")}, deliveries, size),
            _median(times, lambda: _push("push to a file, outcomes written", lines, deliveries, size)),
            _median(times, lambda: _push("the same, 20,000 in a chunk", lines, deliveries, size, **_LARGE_CHUNKS)),
        ]
        rows[0] = rows[0]._replace(goal=HTTP_GOAL)
        rows[2] = rows[2]._replace(goal=FILE_GOAL)
        url, some = receiver.url("/ok/client"), max(1, deliveries // _HTTPX_SHARE)
        body = event(0, size)
        clients: list[tuple[str, Callable[[], Any], int]] = [
            ("aiohttp, only the POST", lambda: asyncio.run(_aiohttp(url, body, deliveries, in_flight)), deliveries),
            ("httpx, only the POST", lambda: asyncio.run(_httpx(url, body, some, in_flight)), some),
        ]
        rows += [Row(what, count, measured(client, ours)) for what, client, count in clients]
    wanted = 2 * deliveries + some
    assert receiver.received >= wanted, f"the receiver got {receiver.received} of {wanted} requests"
    return rows


def _push(what: str, target: dict[str, Any], deliveries: int, size: int, **settings: str) -> Row:
    with site(**settings) as installation:
        target = target | ({"path": str(installation.folder / target["path"])} if "path" in target else {})
        installation.write_rules({"all": {"target": target}})
        installation.publish(deliveries, size)
        batch_id, chunk_ids = installation.routed()
        cost = measured(lambda: push_all(installation, batch_id, chunk_ids), cores()[0])
        _prove(cost.result, deliveries)
    return Row(what, deliveries, cost)


def _median(times: int, measure: Callable[[], Row]) -> Row:
    """Return the median of so many passes.

    What takes a third of a second is measured several times: a virtual machine may have to get back from its host the
    memory that it touches, which took as long again.
    """
    rows = sorted((measure() for _ in range(times)), key=lambda row: row.cost.wall)
    return rows[len(rows) // 2]


def _prove(delivered: int, wanted: int) -> None:
    if delivered != wanted:
        raise RuntimeError(f"only {delivered:,} of {wanted:,} were delivered within their push budgets")


async def _aiohttp(url: str, body: bytes, count: int, in_flight: int) -> None:
    left = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight)) as client:

        async def send() -> None:
            for _ in left:
                async with client.post(url, data=body, headers=_TYPE) as response:
                    assert response.status == 200

        await asyncio.gather(*(send() for _ in range(in_flight)))


async def _httpx(url: str, body: bytes, count: int, in_flight: int) -> None:
    left = iter(range(count))
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(limits=limits) as client:

        async def send() -> None:
            for _ in left:
                response = await client.post(url, content=body, headers=_TYPE)
                assert response.status_code == 200

        await asyncio.gather(*(send() for _ in range(in_flight)))


def _table(rows: list[Row], size: int, in_flight: int) -> Table:
    table = Table(title=f"deliveries of {size:,} bytes, {in_flight} in flight, one process on one core")
    for title in ("what", "deliveries", "CPU s", "wall s", "per CPU-second", "per second", "MiB", "goal", "reached"):
        table.add_column(title, justify="left" if title == "what" else "right")
    for row in rows:
        per_cpu, per_second = row.rates
        goal = " / ".join("-" if each is None else f"{each:,}" for each in row.goal)
        said = ("", "") if row.goal == (None, None) else (goal, "yes" if row.kept else "NO")
        cost = row.cost
        numbers = (
            f"{row.deliveries:,}",
            f"{cost.cpu:.2f}",
            f"{cost.wall:.2f}",
            f"{per_cpu:,.0f}",
            f"{per_second:,.0f}",
        )
        table.add_row(row.what, *numbers, f"{cost.peak_mib:.0f}", *said)
    return table


if __name__ == "__main__":
    sys.exit(main())
