"""`make bench-page`: how long each page of `eventbridge serve` takes over a month of events and 10,000 rules.

The archive is written day by day to ledger and store, as `buffer` lands it. On each day some events pass all stages
with that day's clock, and some of them fail, so that stats, dead letters and reconciliation cover a month. Then
`maintain` builds the index and folds the stats. The default is 100,000 events a day: the growth over the month is
shown. Each page is requested over HTTP from a server process, with the browser's cookie, and compared with the same
page of an installation with one rule and one event.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import httpx
import msgspec
import psutil
from benchmarks.archive import archive_batch, record
from benchmarks.bench_site import BUS, RUNNER, Site, event, site
from benchmarks.bench_why import archived_events
from fastapi.routing import APIRoute
from rich.console import Console
from rich.table import Table

from eventbridge.api.app import PAGE_ROUTERS
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.backtest import BacktestRequest, backtest_rules, keep_report
from eventbridge.control.consecutive_batches import cancel_replay
from eventbridge.dead_letters.redrive_plan import begin_redrive
from eventbridge.dead_letters.selection import Selection
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.upkeep.event_index import index_events
from eventbridge.upkeep.maintain import fold_stats
from eventbridge.upkeep.run import RetentionRun

#: Milliseconds of a page, the 95th of a hundred, warm; and times the same page of an installation that is empty.
GOAL: Final = 150.0
TIMES: Final = 3.0
#: The maximum size of a page's HTML, in bytes.
BYTES: Final = 61_440
#: The maximum time to find an event by its id, in milliseconds.
FIND_GOAL: Final = 1_000.0

#: A page below this may take more than three times as long as an empty one: the clock is too coarse to tell.
_SMALL: Final = 20.0

#: At least one of each page; `main` refuses to run without.
_PAGES: Final = (
    "",
    "?from=7d",
    "/rules",
    "/rules?find=r09&after=r09000",
    "/rules/r00007",
    "/rules/r00007/test",
    "/rules/r00007/test?event=DELIVERED",
    "/backtest?rule=r00007&from=1h",
    "/backtests",
    "/backtests/REPORT",
    "/schemas",
    f"/schemas?bus={BUS}",
    "/schemas/t7",
    "/targets",
    "/targets/r00007/good",
    "/targets/r00007/good?from=7d",
    "/dead-letters",
    "/dead-letters?rule=r00007",
    "/dead-letters/LETTER",
    "/events",
    f"/events?bus={BUS}",
    f"/events?bus={BUS}&status=delivered&from=24h",
    f"/events?bus={BUS}&rule=r00007&from=24h",
    "/events?type=t7",
    "/events?subject=nobody",
    "/batches",
    "/buses",
    "/batches/BATCH",
    "/batches/BATCH/chunks/0",
    "/replays",
    "/replays/REPLAY",
    "/actions",
    "/actions?find=nobody",
    "/api",
    "/errors",
    f"/replay?bus={BUS}&from=1h&rules=r00007",
    f"/replay?bus={BUS}&from=30d&rules=r00007&count=1",
    "/redrives",
    "/redrive?rule=r00007&reason=transform_failed",
    "/targets/r00007/good/try?event=DELIVERED",
    "/request?id=DELIVERED&rule=r00007&target=good&delivery=SENT",
    "/lag.json",
)
_FINDS: Final = ("/event?id=DELIVERED", "/event?id=OLD")
#: What pages are made of, and what only sends a browser on.
_NO_PAGES = {"/page/style.css", "/page/theme.js", "/page/lag.js", "/page/page.js", "/page/api.js"}
_NO_PAGES |= {"/page/chunk", "/page/run", "/page/find", "/page/events/export"}
#: Redrives, replays, reports of backtests and, each day, actions of operators, that lie behind the pages.
_REQUESTS: Final = 20
_ACTIONS: Final = 100


@dataclass(frozen=True)
class Asked:
    """One page: milliseconds of wall clock, the 95th of a hundred, and of the server's CPU time; its bytes."""

    wall: float
    cpu: float
    size: int


def main() -> int:
    """Measure and print the tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--events", type=int, default=100_000, help="events a day")
    parser.add_argument("--batches", type=int, default=576, help="batches a day: one in 150 s")
    parser.add_argument("--delivered", type=int, default=200, help="events a day that go through all stages")
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100, help="times that each page is asked for")
    options = parser.parse_args()
    if missing := _without_row():
        raise SystemExit(f"these pages have no row: {missing}")
    columns: dict[str, dict[str, Asked]] = {}
    with site() as installation:
        _write_rules(installation, 1)
        _deliver(installation, 0, 1, 1, 1)
        _report(installation, 1)
        columns["empty"] = _measured(installation, options.rounds, "")
    with site() as installation:
        _write_rules(installation, options.rules)
        done = 0
        for days in sorted({max(1, options.days // 4), max(1, options.days // 2), options.days}):
            for day in range(done, days):
                _deliver(installation, day, options.days, options.delivered, options.rules)
                _land(installation, day, options)
            with closing(installation.open()) as runtime:
                _request(runtime, len(columns))
                for tend in (index_events, fold_stats):
                    tend(RetentionRun(runtime, 86_400.0, dry_run=False))
            _report(installation, _REQUESTS)
            columns[f"{days} days"] = _measured(installation, options.rounds, f"old-{options.events // 2:012d}")
            done = days
    return 0 if _show(columns, options) else 1


def _without_row() -> list[str]:
    """Return the routes of pages that are not asked for."""
    found = [route for router in PAGE_ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    asked = [f"/page{page.partition('?')[0]}" for page in (*_PAGES, *_FINDS)]
    pages = [route for route in found if "GET" in route.methods and route.path not in _NO_PAGES]
    return [route.path for route in pages if not any(route.path_regex.fullmatch(page) for page in asked)]


def _write_rules(installation: Site, count: int) -> None:
    """Write so many rules, each of a type of its own; every eighth one cannot be rendered for its second target."""
    lines = {"type": "file", "path": str(installation.folder / "lines.jsonl")}
    wrong = lines | {"transform": {"form": "JSONPATH", "value": "$.data.nothing", "missing": "error"}}
    names = [f"r{number:05d}" for number in range(count)] if count > 1 else ["r00007"]
    rules = {name: {"good": lines, "bad": wrong} if int(name[1:]) % 8 == 7 else {"good": lines} for name in names}
    installation.write_rules(rules, {name: [f"t{int(name[1:])}"] for name in names})


def _deliver(installation: Site, day: int, days: int, count: int, rules: int) -> None:
    """Have some events go through all stages, on the clock of a day of the last month; a third of them for one rule."""
    behind = timedelta(days=days - day - 1)

    def clock() -> datetime:
        return datetime.now(UTC) - behind

    first = day * count
    kinds = [f"t{7 if number % 3 == 0 else number % rules}" for number in range(first, first + count)]
    with EmbeddedBus(installation.folder / "home" / "bus", BUS, topics=("events",), partitions=4, clock=clock) as bus:
        bus.publish([(event(first + number, 256, kind), None) for number, kind in enumerate(kinds)])
    environ = installation.environ()
    settings, connections = Settings.from_mapping(environ), connections_from_environment(environ)
    with closing(open_runtime(settings, connections, clock=clock)) as runtime:
        deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store), wait_seconds=1.0)
        for number in range(_ACTIONS):
            runtime.ledger.actions.record("bench", "POST /v1/rules/r1/pause", f"{number}")


def _request(runtime: Runtime, turn: int) -> None:
    """Record redrives and replays of one rule, and end them."""
    request = WrittenReplayRequest(BUS, since="1h", rules=["r00007"]).read(runtime.ledger.now(), runtime.rule_set())
    how = {"rate": None, "retransform": False, "again": True}
    for number in range(_REQUESTS):
        run = f"bench {turn} {number}"
        redrive = begin_redrive(runtime, Selection(rule="r00007"), run, **how)
        runtime.ledger.redrives.end(redrive.redrive_id, "cancelled")
        cancel_replay(runtime, begin_replay(runtime, request, run).replay_id)


def _report(installation: Site, count: int) -> None:
    """Keep so many reports of a backtest of the last hour's archive."""
    with closing(installation.open()) as runtime:
        found = backtest_rules(runtime, "r00007", BacktestRequest("1h"), InProcessRouter(runtime.store))
        for _ in range(count):
            keep_report(runtime, msgspec.structs.replace(found, backtest_id=str(uuid.uuid4())))


def _land(installation: Site, day: int, options: argparse.Namespace) -> None:
    """Put a day's other batches into store and ledger, as if they were landed and committed then."""
    begin = datetime.now(UTC) - timedelta(days=options.days - day)
    size = max(1, options.events // options.batches)
    with closing(installation.open()) as runtime:
        (first,) = runtime.ledger.batches.find(limit=1)
        times = [begin + number * timedelta(days=1) / options.batches for number in range(options.batches)]
        tables = [archived_events(day * options.events + number * size, size, at) for number, at in enumerate(times)]
        found = zip(times, tables, strict=True)
        record(runtime, [archive_batch(runtime, first.rule_set, at, [table]) for at, table in found])


def _measured(installation: Site, rounds: int, old: str) -> dict[str, Asked]:
    """Return what each page takes, warm."""
    with _served(installation) as (browser, server, bearer):
        batch = re.findall(rf'/page/batches/([0-9a-f-]{{36}})">[^\n]*data-name="Runner">{RUNNER}<', _batches(browser))
        call = {"bus": BUS, "from": "1h", "rules": ["r00007"]}
        replay = browser.post("/v1/replays", json=call, headers=bearer).json()["replay_id"]
        event = browser.get(f"/v1/events/e{0:09d}", headers=bearer).json()["events"][0]
        letters = re.findall(
            r'href="/page/dead-letters/([0-9a-f-]{36}%40[0-9a-f]{8})"', browser.get("/page/dead-letters?by=letter").text
        )
        reports = re.findall(r'href="/page/backtests/([0-9a-f-]+)"', browser.get("/page/backtests").text)
        names = {"REPORT": reports[0], "BATCH": batch[0], "LETTER": letters[0], "DELIVERED": f"e{0:09d}", "OLD": old}
        names |= {"REPLAY": replay, "SENT": event["deliveries"][-1]["delivery_id"]}
        found: dict[str, Asked] = {}
        for page in (*_PAGES, *_FINDS):
            path = re.sub("|".join(names), lambda match: names[match[0]], page)
            if path.endswith("="):  # the empty one has no archive
                continue
            found[page] = _asked(browser, server, f"/page{path}", rounds)
        return found


def _batches(browser: httpx.Client) -> str:
    """Return pages of batches up to one that has gone through all stages."""
    text, found = "", browser.get("/page/batches").text
    while True:
        text += found
        more = re.search(r'/batches\?cursor=([^"]+)"', found)
        if f'data-name="Runner">{RUNNER}<' in text or more is None:
            return text
        found = browser.get(f"/page/batches?cursor={more[1]}").text


def _asked(browser: httpx.Client, server: psutil.Process, path: str, rounds: int) -> Asked:
    for _ in range(2):
        response = browser.get(path)
        if response.status_code != 200:
            raise SystemExit(f"{path} responds with {response.status_code}: {response.text[-600:]}")
    times = []
    before = sum(server.cpu_times()[:2])
    for _ in range(rounds):
        begun = time.perf_counter()
        browser.get(path)
        times.append(time.perf_counter() - begun)
    cpu = sum(server.cpu_times()[:2]) - before
    slow = sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]
    return Asked(slow * 1e3, cpu / rounds * 1e3, len(response.content))


@contextmanager
def _served(installation: Site) -> Iterator[tuple[httpx.Client, psutil.Process, dict[str, str]]]:
    """Run `eventbridge serve` for the block; give a browser, the server's process, and a program's header."""
    environ = os.environ | installation.environ()
    command = [sys.executable, "-m", "eventbridge.cli"]
    name = f"bench-{time.time_ns()}"
    made = subprocess.run(
        [*command, "tokens", "create", name, "--scope", "read", "--scope", "payloads", "--scope", "operate", "--json"],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    log = Path(installation.folder, "served")
    with (
        log.open("w") as said,
        subprocess.Popen([*command, "serve", "--port", "0"], env=environ, stdout=said) as server,
    ):
        try:
            while not log.read_text().endswith("\n"):
                time.sleep(0.1)
            url = log.read_text().split()[-1]
            with httpx.Client(base_url=url, timeout=120) as browser:
                token = json.loads(made.stdout)["token"]
                browser.post("/page/login", data={"token": token})
                yield browser, psutil.Process(server.pid), {"authorization": f"Bearer {token}"}
        finally:
            server.terminate()


def _show(columns: dict[str, dict[str, Asked]], options: argparse.Namespace) -> bool:
    empty, *_, last = columns.values()
    table = Table(title="Pages, warm: milliseconds, 95th of a hundred (CPU of the server, mean)")
    for title in ("page", *columns, "times empty", "bytes", "status"):
        table.add_column(title, justify="left" if title == "page" else "right")
    kept = True
    for page, asked in last.items():
        goal = FIND_GOAL if page in _FINDS else GOAL
        times = asked.wall / empty[page].wall if page in empty else None
        many = times is not None and times > TIMES and asked.wall > _SMALL and page not in _FINDS
        good = asked.wall <= goal and not many and asked.size <= BYTES
        kept &= good
        cells = [f"{each[page].wall:.0f} ({each[page].cpu:.0f})" if page in each else "" for each in columns.values()]
        table.add_row(
            page or "/", *cells, "" if times is None else f"{times:.1f}", f"{asked.size:,}", "met" if good else "MISSED"
        )
    console = Console(width=130)
    console.print(table)
    console.print(
        f"{options.days} days of {options.events:,} events in {options.batches:,} batches, {options.rules:,} rules, "
        f"{options.days * options.delivered:,} events through all stages"
    )
    console.print(
        f"goals: each page at most {GOAL:g} ms, and {TIMES:g} times the empty one or {_SMALL:g} ms; "
        f"find by id at most {FIND_GOAL:,.0f} ms; HTML at most {BYTES:,} bytes: {'met' if kept else 'MISSED'}"
    )
    return kept


if __name__ == "__main__":
    sys.exit(main())
