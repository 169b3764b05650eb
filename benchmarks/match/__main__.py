"""`make bench-match`: our matcher, Event Ruler, and both on Spark, in CPU-seconds of the whole tree of processes.

About ten minutes on two quiet cores; `QUICK=1 make bench-match` about two, for a first look.
The exit code is 1 if a response is wrong or something is missing here. A goal or a floor that is not kept is only
shown, as they are numbers of one machine; what would be the same on any, the responses, is what can fail here.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.match.bench import run
from benchmarks.match.lines import sections
from benchmarks.match.remote import BenchError
from benchmarks.match.results import Results
from benchmarks.match.table import print_shares, print_table, summary_lines
from benchmarks.match.workload import QUICK, Scale, Workload


def main() -> int:
    """Measure, print the table and what was checked, return the exit code."""
    scale = QUICK if os.environ.get("QUICK") else Scale()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        work = Workload(Path(folder), scale)
        try:
            results = run(work)
        except BenchError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
    return report(work, results)


def report(work: Workload, results: Results) -> int:
    """Print the tables, what is kept of the goals and what was checked; return the exit code."""
    found = sections(work, results)
    rounds = f"{work.scale.rounds} round{'s' if work.scale.rounds > 1 else ''}"
    print_table(f"Matching, {rounds} of all, one thread each but on Spark", found)
    print_shares("Where the kernel's time goes, nanoseconds an event of 519 bytes, mixed rules", results.shares)
    if work.scale == QUICK:
        _print_line("A first look: passes of a few thousand events, too short to judge anything by.")
    for line in summary_lines(found):
        _print_line(line)
    _print_line("Results compared:")
    for line in results.checks.lines:
        _print_line(f"  {line}")
    return 1 if results.checks.failures else 0


def _print_line(line: str) -> None:
    print(line)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
