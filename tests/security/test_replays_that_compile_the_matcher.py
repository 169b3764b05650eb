"""A dry run of a replay does not compile the matcher, which takes minutes: it is refused while a process does."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from api.server import Installation, Server, order

from eventbridge.bounded_call import CLOCK_SECONDS

#: Long enough for a busy machine, and far less than the compilation takes.
SOON = 15.0
DRY_RUN = {"bus": "orders", "from": "1h", "dry_run": True}


class NeverCompiled(Installation):
    """An installation whose server finds no compiled code: it has a cache of its own, for another processor."""

    def __init__(self, folder: Path) -> None:
        cache = {"NUMBA_CACHE_DIR": str(folder / "cache"), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        super().__init__(folder, **cache)

    def command(self, *arguments: str) -> list[str]:
        """Return a call of the command line; the server is a process by itself, not a fork of one with a matcher."""
        if arguments[0] != "serve":
            return super().command(*arguments)
        return [sys.executable, "-m", "eventbridge.cli", *arguments]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Server]:
    """A server whose installation has an archived event, and has never compiled the matcher."""
    made = NeverCompiled(tmp_path)
    (tmp_path / "orders.jsonl").write_text(json.dumps(order(1)))
    made.run("events", "publish", "orders", str(tmp_path / "orders.jsonl"))
    made.deliver("orders")
    with Server(made) as running:
        yield running


def compiling(server: Server) -> list[Path]:
    """Return the processes that compile the matcher for a server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server.process.pid and b"compile_process" in (folder / "cmdline").read_bytes():
                found.append(folder)
    return found


def until_ended(process: Path) -> bool:
    """Return whether a process ends soon."""
    ends = time.monotonic() + SOON
    while process.exists():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def test_a_dry_run_is_refused_while_the_matcher_is_compiled(fresh: Server) -> None:
    """It gets 503 within its limit, a process continues to compile, and it ends with the server."""
    began = time.monotonic()
    with fresh.client(fresh.installation.token("operator", "read", "operate")) as client:
        response = client.post("/v1/replays", json=DRY_RUN, timeout=4 * CLOCK_SECONDS)
        took = time.monotonic() - began
        status = client.get("/health").status_code
    processes = compiling(fresh)
    fresh.end()

    assert took < CLOCK_SECONDS
    assert (response.status_code, status) == (503, 200)
    assert int(response.headers["retry-after"]) > 0
    assert "`eventbridge compile`" in response.json()["detail"]
    assert len(processes) == 1
    assert until_ended(processes[0])
