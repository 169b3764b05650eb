"""Asks fork servers (see `fork_server.py`) to run stages of a world and to let them die."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from faults.fork_server import DIED

__all__ = ["DIED", "Crashes", "crashes"]

_TESTS = Path(__file__).parents[1]


class Crashes:
    """Some fork servers, each running one stage at a time; `run` may be called from that many threads at once."""

    def __init__(self, servers: list[subprocess.Popen[str]]) -> None:
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        for server in servers:
            self._idle.put(server)

    def run(self, stage: str, folder: Path, *, die_at: int | None = None, later: timedelta = timedelta(0)) -> int:
        """Run a stage (a key of `world.BODIES`) in a world: DIED if it reached its `die_at`-th call, 0 if it ended."""
        server = self._idle.get()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            order = {"stage": stage, "folder": str(folder), "die_at": die_at, "later": later.total_seconds()}
            server.stdin.write(json.dumps(order) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())
        finally:
            self._idle.put(server)


@contextmanager
def crashes(count: int) -> Iterator[Crashes]:
    """Start `count` fork servers and end them after the block."""
    command = [sys.executable, "-m", "faults.fork_server"]
    path = os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    servers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_TESTS,
            env={**os.environ, "PYTHONPATH": path},
        )
        for _ in range(count)
    ]
    try:
        yield Crashes(servers)
    finally:
        for server in servers:
            server.communicate()
