"""Has the fork server (see `fork_server.py`) run stages of worlds with faults in them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.fault import Fault

_TESTS = Path(__file__).parents[1]
#: The maximum duration of a run, in seconds; no run takes a tenth of it on any machine.
_SECONDS = 180.0


@dataclass
class Run:
    """A running or finished stage in a separate process, with its exit code and its reports by name."""

    number: int
    server: Crashes
    code: int | None = None
    reports: dict[str, Any] = field(default_factory=dict)
    _paused: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> Run:
        """Return once the process has ended."""
        assert self._ended.wait(_SECONDS), f"run {self.number} does not end"
        return self

    def wait_for_pause(self) -> bool:
        """Return true once the process is paused, false if it has ended."""
        assert self._paused.wait(_SECONDS), f"run {self.number} neither pauses nor ends"
        return not self._ended.is_set()

    def resume(self) -> None:
        """Resume the paused process."""
        self.server.order({"resume": self.number})

    def kill(self) -> None:
        """Kill the process at any point; do nothing if it has ended."""
        self.server.order({"kill": self.number})

    def hear(self, response: dict[str, Any]) -> None:
        """Handle a response of the server."""
        if "code" in response:
            self.code = response["code"]
            self._ended.set()
            self._paused.set()
        elif response["report"] == "paused":
            self._paused.set()
        else:
            name, what = response["report"]
            self.reports[name] = what


class Crashes:
    """A client of the fork server, which any number of threads may use concurrently."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def start(self, stage: str, folder: Path, visit: Mapping[str, Any], fault: Fault | None = None) -> Run:
        """Start a stage (see `runs.run`) in a world; `visit` is what `world.open_world` takes."""
        run = Run(next(self._numbers), self)
        self._runs[run.number] = run
        order = {"id": run.number, "stage": stage, "folder": str(folder), "visit": dict(visit)}
        self.order(order | {"fault": fault.as_json() if fault is not None else None})
        return run

    def order(self, order: Mapping[str, Any]) -> None:
        """Send one line."""
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """End the server and the processes that it runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._hearing.join(_SECONDS)
        self._process.stdout.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            response = json.loads(line)
            self._runs[response["id"]].hear(response)


@contextmanager
def crashes(*, spark: bool = False) -> Iterator[Crashes]:
    """Start a fork server and end it after the block; if `spark`, its worlds route on Spark."""
    path = os.pathsep.join([str(_TESTS), str(_TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "faults.fork_server", *(["spark"] if spark else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TESTS,
        env={**os.environ, "PYTHONPATH": path},
    )
    server = Crashes(process)
    try:
        yield server
    finally:
        server.end()
