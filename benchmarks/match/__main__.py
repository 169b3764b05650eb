"""`make bench-match`: our matcher, Event Ruler, and both on Spark, in CPU-seconds of the whole tree of processes.

About ten minutes on two quiet cores; `QUICK=1 make bench-match` about one, for a first look.
The exit code is 1 if an answer is wrong or something is missing here; a goal that is not reached is only shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.match.bench import run
from benchmarks.match.lines import sections
from benchmarks.match.remote import BenchError
from benchmarks.match.table import print_table
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
        print_table(f"Matching, {scale.rounds} rounds of all, one thread each but on Spark", sections(work, results))
    print("Answers compared:")  # noqa: T201
    for line in results.checks.lines:
        print(f"  {line}")  # noqa: T201
    return 1 if results.checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
