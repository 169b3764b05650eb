"""What a fresh worker does from its start on: `python -m benchmarks.match.fresh_worker JOB SLICES`, both as JSON."""

from __future__ import annotations

import sys

import pyarrow as pa

from eventbridge.spark.frame import route_numbers
from eventbridge.stages.route_task import route_task


def main() -> int:
    """Route the first slice of a job; 1 if nothing was delivered."""
    job, slices = sys.argv[1:]
    first = pa.RecordBatch.from_pydict({"id": [0]})
    (answer,) = route_numbers(route_task, job, slices, None, iter([first]))
    return 0 if answer.column("rows")[0].as_py() else 1


if __name__ == "__main__":
    sys.exit(main())
