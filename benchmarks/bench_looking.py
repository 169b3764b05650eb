"""`make bench-looking`: the CPU time of read-only commands, compared with the import of their libraries.

Each command runs in a process of its own, as in a shell, alternating with a Python process that only imports
SQLAlchemy, Typer, pydantic and rich: the speed of a shared machine changes, but the ratio does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from benchmarks.bench_site import RUNNER, Site, site
from rich.console import Console
from rich.table import Table

from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter

#: The maximum CPU time of a command, as a multiple of the libraries' import.
GOAL: Final = 3.0

_LIBRARIES: Final = ("-c", "import sqlalchemy, typer, pydantic, rich")
_COMMANDS: Final = (
    ("rules", "check"),
    ("status",),
    ("targets", "list"),
    ("dead-letters", "list"),
    ("audit",),
)


def main() -> int:
    """Measure and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command, of which the median counts")
    parser.add_argument("--events", type=int, default=40, help="events, each delivered once and dead-lettered once")
    options = parser.parse_args()
    with site() as installation:
        _fill(installation, options.events)
        programs = [_LIBRARIES, *(("-m", "eventbridge.cli", *command) for command in _COMMANDS)]
        rounds = [[_cpu_seconds(installation, program) for program in programs] for _ in range(options.rounds)]
    libraries, *medians = (statistics.median(each) for each in zip(*rounds, strict=True))
    return 0 if _show(libraries, medians) else 1


def _fill(installation: Site, events: int) -> None:
    wrong = {"form": "JSONPATH", "value": "$.data.nothing", "missing": "error"}
    lines = {"type": "file", "path": str(installation.folder / "lines.jsonl")}
    installation.write_rules({"lines": {"good": lines, "bad": lines | {"transform": wrong}}})
    installation.publish(events, 256)
    with closing(installation.open()) as runtime:
        deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store), wait_seconds=1.0)


def _cpu_seconds(installation: Site, program: Sequence[str]) -> float:
    """Return the CPU time, in user and system mode, of one Python process that runs a program on the installation."""
    with subprocess.Popen(
        [sys.executable, *program], env=os.environ | installation.environ(), stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`{' '.join(program)}` ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _show(libraries: float, medians: Sequence[float]) -> bool:
    table = Table(title="CPU time of a read-only command, median")
    for title in ("command", "CPU s", "times the import"):
        table.add_column(title, justify="left" if title == "command" else "right")
    table.add_row("import of SQLAlchemy, Typer, pydantic, rich", f"{libraries:.2f}", "1.0")
    for command, seconds in zip(_COMMANDS, medians, strict=True):
        table.add_row(f"eventbridge {' '.join(command)}", f"{seconds:.2f}", f"{seconds / libraries:.1f}")
    Console(width=120).print(table)
    kept = all(seconds <= GOAL * libraries for seconds in medians)
    print(f"goal: each at most {GOAL:g} times the import: {'met' if kept else 'MISSED'}")  # noqa: T201
    return kept


if __name__ == "__main__":
    sys.exit(main())
