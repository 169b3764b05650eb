"""One request keeps neither a processor nor gigabytes: SQL ends with its caller, at its deadline, with the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from api.server import Installation, Server, order

from eventbridge.api.call_pools import EXPENSIVE, MAX_RUNNING, MAX_WAITING, CallPool
from eventbridge.errors import UserError
from eventbridge.processes import TimeSpent
from eventbridge.store import sql_messages, sql_sandbox
from eventbridge.store.queries import COLUMNS, rows_where
from eventbridge.store.sql_sandbox import SqlLimited

ENDLESS = "(WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x > 0) SELECT max(x) FROM t) > 0"
LARGE = "length(repeat('x', 3000000000)) > 0"
#: Long enough for a busy machine, and far less than the deadline of a question.
SOON = 15.0


class Started(Installation):
    """An installation whose server is a process by itself, not a fork: the test reads its children."""

    def command(self, *arguments: str) -> list[str]:
        """Return a call of the command line."""
        if arguments[0] != "serve":
            return super().command(*arguments)
        return [sys.executable, "-m", "eventbridge.cli", *arguments]


def installed(folder: Path) -> Installation:
    """Return an installation with an event in its archive, and a secret in its environment."""
    made = Started(folder, EVENTBRIDGE_CONN_SECRET='{"conn_type": "http", "password": "hush-hush"}')
    (folder / "orders.jsonl").write_text(json.dumps(order(1)))
    made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    return made


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Server]:
    """A server of its own, which has loaded the matcher: the first dry run waits for that."""
    with Server(installed(tmp_path)) as running:
        with running.client(running.installation.token("first", "read", "operate")) as client:
            client.post("/v1/replays", json={"bus": "orders", "from": "1h", "dry_run": True})
        yield running


def seeing(server: Server) -> httpx.Client:
    """Return a client that may do everything."""
    return server.client(server.installation.token("all", "read", "payloads", "operate"))


def asked(server: Server) -> list[Path]:
    """Return the processes that ask DuckDB for a server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server.process.pid and b"sql_process" in (folder / "cmdline").read_bytes():
                found.append(folder)
    return found


def until(true: Callable[[], object], seconds: float = SOON) -> bool:
    """Return whether something becomes true in time."""
    ends = time.monotonic() + seconds
    while not true():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def preview(client: httpx.Client, sql: str, seconds: float = 60) -> httpx.Response:
    """Ask for a dry run of a replay by a condition."""
    call = {"bus": "orders", "from": "1h", "sql": sql, "dry_run": True}
    return client.post("/v1/replays", json=call, timeout=seconds)


def leave(server: Server, headers: dict[str, str], count: int = 1, seconds: float = 60) -> list[threading.Thread]:
    """Ask for what never ends, so many times at once, in threads that end when the server does or the time is over."""

    def ask() -> None:
        with suppress(httpx.HTTPError), httpx.Client(base_url=server.url, headers=headers) as client:
            preview(client, ENDLESS, seconds)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for each in threads:
        each.start()
    return threads


def test_a_query_ends_when_its_caller_leaves(busy: Server) -> None:
    """Its process ends soon after the connection was closed, and the server continues to respond."""
    with seeing(busy) as client:
        (thread,) = leave(busy, dict(client.headers), seconds=SOON)
        until(lambda: asked(busy))
        processes = asked(busy)
        thread.join()
        ended = until(lambda: not [each for each in processes if each.exists()])
        responded = preview(client, "true")

    assert (len(processes), ended) == (1, True)
    assert (responded.status_code, responded.json()["taken"]) == (200, 1)


def test_a_query_ends_with_the_server(busy: Server) -> None:
    """SIGTERM does not wait for SQL: the server ends in good order, and its process with it."""
    with seeing(busy) as client:
        headers = dict(client.headers)
    (thread,) = leave(busy, headers)
    began = until(lambda: asked(busy))
    processes = asked(busy)
    code, _ = busy.end(signal.SIGTERM)
    thread.join()

    assert (began, code) == (True, 0)
    assert until(lambda: not [each for each in processes if each.exists()])


def test_a_query_ends_when_the_server_is_killed(busy: Server) -> None:
    """No parent exists to end its process then: it ends itself."""
    with seeing(busy) as client:
        headers = dict(client.headers)
    (thread,) = leave(busy, headers)
    began = until(lambda: asked(busy))
    processes = asked(busy)
    busy.process.kill()
    thread.join()

    assert began
    assert until(lambda: not [each for each in processes if each.exists()])


def test_a_query_of_gigabytes_is_refused(busy: Server) -> None:
    """A string of three gigabytes is too large, and the response says so."""
    with seeing(busy) as client:
        response = preview(client, LARGE)
        after = preview(client, "true")

    assert (response.status_code, "takes more than 1GB of memory" in response.text) == (400, True)
    assert after.status_code == 200


def test_other_calls_get_a_response_while_expensive_ones_fill_their_places(busy: Server) -> None:
    """The state of the quota is returned at once; one expensive call more is refused with Retry-After."""
    with seeing(busy) as client:
        headers = dict(client.headers)
        threads = leave(busy, headers, MAX_RUNNING)
        began = until(lambda: len(asked(busy)) == MAX_RUNNING)
        more = leave(busy, headers, MAX_WAITING)
        times = []
        for path in ("/v1/status", "/v1/rules", "/health", "/v1/targets", "/v1/stats", "/v1/batches"):
            before = time.monotonic()
            assert client.get(path, follow_redirects=True).status_code == 200
            times.append(time.monotonic() - before)
        full = client.post("/v1/rules/check", json={"file": "a.yaml", "content": "rules: {}"}, timeout=60)
    busy.process.kill()
    for each in (*threads, *more):
        each.join()

    assert began
    assert max(times) < SOON
    assert full.status_code == 503
    assert int(full.headers["retry-after"]) > 0
    assert "busy" in full.json()["detail"]


def test_a_query_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a disconnect and without a kill, the time limit ends it, and the message names the limit."""
    monkeypatch.setattr(sql_messages, "SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(UserError, match="takes more than 1 s"):
        rows_where(COLUMNS.empty_table(), ENDLESS)

    assert time.monotonic() - began < SOON


class Staying:
    """A request whose caller waits, however long it takes."""

    async def receive(self) -> dict[str, str]:
        """Wait for what never comes."""
        await asyncio.Event().wait()
        raise AssertionError


def test_all_queries_of_a_call_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay asks once for each file of the archive: the files do not multiply the time."""
    monkeypatch.setattr(sql_messages, "SECONDS", 1.0)
    asked = 0

    def ask_for_each_file() -> None:
        nonlocal asked
        for _ in range(100):
            asked += 1
            with suppress(SqlLimited), sql_sandbox.database() as database:
                database.ask([f"SELECT {ENDLESS}"])

    async def call() -> None:
        await CallPool(replace(EXPENSIVE, seconds=4.0)).run(Staying(), ask_for_each_file)  # type: ignore[arg-type]

    began = time.monotonic()
    with pytest.raises(TimeSpent, match="more than 4 s, the limit for one call"):
        asyncio.run(call())

    assert asked > 1
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    "condition",
    [
        "getenv('HOME') IS NOT NULL",
        "(SELECT count(*) FROM read_text('/proc/self/environ')) > 0",
        "(SELECT count(*) FROM '/etc/passwd') > 0",
        "(SELECT count(*) FROM glob('/etc/*')) > 0",
        "true) FROM events; COPY events TO 'out.csv'; SELECT (true",
        "true; SET enable_external_access = true",
        "(SELECT count(*) FROM read_csv('https://127.0.0.1:9/x')) > 0",
    ],
)
def test_a_query_reaches_nothing_outside(condition: str, tmp_path: Path) -> None:
    """It reads no file, no environment and no address, and holds one expression."""
    with pytest.raises(UserError, match="not an SQL condition"):
        rows_where(COLUMNS.empty_table(), condition)


def test_the_process_has_no_secret(busy: Server) -> None:
    """Its environment holds nothing of the server's that could be a secret."""
    with seeing(busy) as client:
        preview(client, "true")
    (process,) = asked(busy)
    environ = (process / "environ").read_bytes()

    assert b"hush" not in environ
    assert b"EVENTBRIDGE" not in environ


def test_a_process_that_died_is_started_again() -> None:
    """What ended one question, such as the kernel for want of memory, is no trouble of the next."""
    events = pa.table({name: pa.array([None], field.type) for name, field in zip(COLUMNS.names, COLUMNS, strict=True)})
    assert rows_where(events, "true").tolist() == [True]
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"sql_process" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)

    assert rows_where(events, "true").tolist() == [True]
